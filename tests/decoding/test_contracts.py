"""D4: what becomes of rows that do not fit the declared schema."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.specimens import decoding

from streamfactory.spi import Decoded, ErrorBudgetExceeded, SchemaMismatch
from streamfactory.spi.hooks import DECODERS
from streamfactory.transfer.copies import open_copy
from streamfactory.wiring.decoding.contracts import Contract, agreed
from streamfactory.wiring.streams.stream import open_stream

if TYPE_CHECKING:
    from tests.decoding.conftest import Streams

FOUND = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("size", pa.float64()),
        pa.field("extra", pa.string()),
    ]
)
DDL = "id bigint not null, size int"
"""Without `extra`, and with whole sizes only."""
IDS = [1, 2, None, 4]
SIZES = [1.0, 2.5, 3.0, 4.0]
EXTRAS = [None, None, None, "x"]


def four(values: pa.Array) -> Decoded:
    """A row for each of four messages: one that fits, and three that do not."""
    given = [pa.array(IDS), pa.array(SIZES), pa.array(EXTRAS)]
    return Decoded(pa.RecordBatch.from_arrays(given, names=FOUND.names))


def defined(streams: Streams, declared: str | None = DDL, **options: str) -> None:
    streams.plugins.unregister(DECODERS, "words")
    streams.plugins.register(decoding(four, FOUND))
    streams.messages("from", [b"0", b"1", b"2", b"3"])
    given = {"stream__memory__decoder__class__name": "words", **options}
    if declared is not None:
        given["schema"] = declared
    streams.define("from", **given)


def read(streams: Streams, declared: str | None = DDL, **options: str) -> Any:
    defined(streams, declared, **options)
    with open_stream("from", plugins=streams.plugins) as stream:
        table = pa.Table.from_batches([b.rows for b in stream], stream.schema)
    return table.to_pydict()


def test_freeze_reports_a_new_column_when_the_stream_is_opened(
    streams: Streams,
) -> None:
    with pytest.raises(SchemaMismatch) as caught:
        read(streams)
    assert str(caught.value) == (
        "column 'extra' is not in the declared schema (stream 'from')"
    )


def test_freeze_fails_at_a_value_that_does_not_fit(streams: Streams) -> None:
    with pytest.raises(SchemaMismatch) as caught:
        read(streams, f"{DDL}, extra string")
    assert caught.value.what.startswith("column 'size' is double, declared int: ")


def test_evolve_takes_a_column_that_is_new_when_the_stream_is_opened(
    streams: Streams,
) -> None:
    found = read(streams, "size double", schema__contract="evolve")
    assert list(found) == ["size", "id", "extra"]
    assert found["extra"] == EXTRAS


def test_evolve_leaves_out_a_column_that_comes_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    contract = Contract(agreed(None, FOUND, "evolve"), "evolve", None, ())
    later = four(pa.array([b""])).rows.append_column("more", pa.array([1, 2, 3, 4]))
    with caplog.at_level(logging.WARNING):
        contract.fit(later)
        rows, wrong = contract.fit(later)
    assert rows.schema.names == FOUND.names
    assert wrong == {}
    assert [record.getMessage() for record in caplog.records] == [
        "column 'more' is not in the schema of the stream: dropped"
    ]


def test_discard_row_drops_the_rows_that_do_not_fit(streams: Streams) -> None:
    found = read(streams, schema__contract="discard_row", metadata__columns="true")
    assert (found["id"], found["size"], found["_offset"]) == ([1], [1], [0])


def test_discard_row_reports_what_did_not_fit(streams: Streams) -> None:
    found = read(
        streams, schema__contract="discard_row", decode__on__error="dead-letter"
    )
    assert [error and error["message"] for error in found["_error"]] == [
        None,
        "row 0: column 'size' is double, declared int",
        "row 0: column 'id' is null",
        "row 0: column 'extra' is not in the declared schema",
    ]
    assert {error["code"] for error in found["_error"] if error} == {"contract"}
    assert found["_raw"] == [None, b"1", b"2", b"3"]


def test_discarded_rows_count_against_the_budget(streams: Streams) -> None:
    with pytest.raises(ErrorBudgetExceeded) as caught:
        read(streams, schema__contract="discard_row", max__errors="2")
    assert caught.value.what.startswith("3 of 4 messages are bad: offset 1: contract: ")


def test_discard_value_keeps_the_row(
    streams: Streams, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        found = read(streams, schema__contract="discard_value")
    assert found == {"id": IDS, "size": [1, None, 3, 4]}
    assert {record.getMessage() for record in caplog.records} == {
        "column 'extra' is not in the schema of the stream: dropped",
        "column 'size' has values that are not of type int: replaced by null",
    }


def test_letters_of_rows_report_which_row_of_the_message_it_was(
    streams: Streams,
) -> None:
    def answer(values: pa.Array) -> Decoded:
        source = pa.array([0, 0, 1, 1], pa.int32())
        return Decoded(four(values).rows, source)

    defined(
        streams,
        schema__contract="discard_row",
        decode__on__error="dead-letter",
        dead__letter__stream="dead",
    )
    streams.plugins.unregister(DECODERS, "words")
    streams.plugins.register(decoding(answer, FOUND))
    streams.define("to")
    streams.define("dead")
    with open_copy("from", "to", plugins=streams.plugins) as copy:
        copy.run(threading.Event())
    assert [row["id"] for row in streams.rows("to")] == [1]
    found = [(row["offset"], row["ordinal"]) for row in streams.rows("dead")]
    assert found == [(0, 1), (1, 0), (1, 1)]


@given(st.lists(st.one_of(st.none(), st.floats(), st.integers(-5, 5)), max_size=40))
def test_each_value_that_fits_is_kept_and_no_other(values: list[float | None]) -> None:
    given_ = pa.array([None if v is None else float(v) for v in values], pa.float64())
    rows = pa.RecordBatch.from_arrays([given_], names=["n"])
    contract = Contract(pa.schema({"n": pa.int32()}), "discard_value", None, ())
    found, wrong = contract.fit(rows)
    expected = [
        int(v) if v is not None and v == v and abs(v) < 2**31 and v == int(v) else None
        for v in values
    ]
    assert found.column("n").to_pylist() == expected
    assert wrong == {}
