"""D4: fields and values of single messages that the declared schema does not have.

The same for every decoder: `schema.contract` decides, and decoders report.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.specimens import Dictionary, decoding

from streamfactory.decoders.avro.decoding import AvroBatchDecoder
from streamfactory.decoders.avro.schemas import parse
from streamfactory.spi import (
    ContractBroken,
    Decoded,
    DecodeError,
    Misfit,
    PerMessageDecoder,
)
from streamfactory.spi.hooks import DECODERS
from streamfactory.wiring.streams.stream import open_stream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.decoding.conftest import Streams

DDL = "id bigint, size int"


def ipc(**columns: Any) -> bytes:
    rows = pa.record_batch({name: [value] for name, value in columns.items()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_batch(rows)
    return bytes(sink.getvalue())


class Parsing(PerMessageDecoder):
    """A third party's: what ``json.loads`` says."""

    def schema(self) -> pa.Schema:
        return pa.schema({"id": pa.int64(), "size": pa.int32()})

    def decode_message(self, value: bytes) -> Any:
        return json.loads(value)


OBJECTS = [
    b'{"id": 0, "size": 1}',
    b'{"id": 1, "size": 1, "SECRET": 5}',
    b'{"id": 2, "size": "x"}',
    b'{"id": 3}',
    b'{"id": 4, "size": "x", "SECRET": 5}',
    b'{"id": 5, "size": 1}',
]
HEADED = [
    b"id,size\n0,1",
    b"size,SECRET,id\n1,5,1",
    b"id,size\n2,x",
    b"id\n3",
    b"size,SECRET,id\nx,5,4",
    b"id,size\n5,1",
]
BATCHES = [
    ipc(id=0, size=1),
    ipc(id=1, size=1, SECRET=5),
    ipc(id=2, size="x"),
    ipc(id=3),
    ipc(id=4, size="x", SECRET=5),
    ipc(id=5, size=1),
]
FORMATS: dict[str, tuple[Sequence[bytes], dict[str, str]]] = {
    "json": (OBJECTS, {}),
    "csv": (HEADED, {"header__in__message": "true"}),
    "arrow": (BATCHES, {}),
    "parsing": (OBJECTS, {}),
}
"""Messages 1 and 4 have an undeclared field, 2 and 4 a size that is no number."""

SIZES = [1, 1, None, None, None, 1]


def read(
    streams: Streams, decoder: str, messages: Sequence[bytes], **options: str
) -> dict[str, list[Any]]:
    given, more = FORMATS.get(decoder, ((), {}))
    streams.plugins.unregister(DECODERS, "words")
    streams.plugins.register(Dictionary(Parsing, "parsing"))
    streams.messages("from", messages or given)
    prefix = "stream__memory__decoder__"
    named = {f"{prefix}prop__{key}": value for key, value in more.items()}
    named[f"{prefix}class__name"] = decoder
    streams.define("from", **{"schema": DDL, **named, **options})
    with open_stream("from", plugins=streams.plugins) as stream:
        table = pa.Table.from_batches([b.rows for b in stream], stream.schema)
    return dict(table.to_pydict())


def good(decoder: str) -> list[bytes]:
    """Messages without a value that does not fit."""
    messages = FORMATS[decoder][0]
    return [messages[n] for n in (0, 1, 3, 5)]


@pytest.mark.parametrize("decoder", FORMATS)
def test_freeze_refuses_a_message_with_an_undeclared_field(
    streams: Streams, decoder: str
) -> None:
    with pytest.raises(DecodeError) as caught:
        read(streams, decoder, good(decoder), schema__contract="freeze")
    assert caught.value.offset == 1
    what = "a message cannot be decoded: schema: it has a field that is not in the"
    assert caught.value.what == f"{what} schema"


@pytest.mark.parametrize("decoder", FORMATS)
def test_freeze_leaves_bad_messages_to_their_policy(
    streams: Streams, decoder: str
) -> None:
    found = read(
        streams, decoder, (), schema__contract="freeze", decode__on__error="skip"
    )
    assert found == {"id": [0, 3, 5], "size": [1, None, 1]}


@pytest.mark.parametrize("decoder", ["json", "csv", "arrow"])
def test_without_a_contract_undeclared_fields_are_left_out(
    streams: Streams, decoder: str, caplog: pytest.LogCaptureFixture
) -> None:
    found = read(streams, decoder, good(decoder))
    assert found == {"id": [0, 1, 3, 5], "size": [1, 1, None, 1]}
    assert caplog.records == []


@pytest.mark.parametrize("decoder", FORMATS)
def test_evolve_leaves_out_fields_of_messages_and_reports_it_once(
    streams: Streams, decoder: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        found = read(streams, decoder, good(decoder) * 3, schema__contract="evolve")
    assert found == {"id": [0, 1, 3, 5] * 3, "size": [1, 1, None, 1] * 3}
    assert [record.getMessage() for record in caplog.records] == [
        "messages have fields that are not in the declared schema: dropped"
    ]


@pytest.mark.parametrize("decoder", FORMATS)
def test_discard_row_drops_rows_and_reading_continues(
    streams: Streams, decoder: str
) -> None:
    found = read(streams, decoder, (), schema__contract="discard_row")
    assert found == {"id": [0, 3, 5], "size": [1, None, 1]}


@pytest.mark.parametrize("decoder", FORMATS)
def test_discard_row_keeps_evidence_of_each_row(streams: Streams, decoder: str) -> None:
    found = read(
        streams,
        decoder,
        (),
        schema__contract="discard_row",
        decode__on__error="dead-letter",
    )
    assert found["id"] == [0, None, None, 3, None, 5]
    codes = [error and error["code"] for error in found["_error"]]
    assert codes == [None, "contract", "contract", None, "contract", None]
    messages = FORMATS[decoder][0]
    assert found["_raw"] == [
        None,
        messages[1],
        messages[2],
        None,
        messages[4],
        None,
    ]
    assert "SECRET" not in str(found["_error"])


@pytest.mark.parametrize("decoder", FORMATS)
def test_discard_value_keeps_every_row(
    streams: Streams, decoder: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        found = read(streams, decoder, (), schema__contract="discard_value")
    assert found == {"id": [*range(6)], "size": SIZES}
    assert sorted(record.getMessage() for record in caplog.records) == [
        "column 'size' has values that are not of type int: replaced by null",
        "messages have fields that are not in the declared schema: dropped",
    ]


@pytest.mark.parametrize("decoder", ["json", "csv"])
def test_required_column_that_is_null_drops_its_row(
    streams: Streams, decoder: str
) -> None:
    options = {"schema": "id bigint, size int not null"}
    found = read(streams, decoder, (), schema__contract="discard_row", **options)
    assert found["id"] == [0, 5]


def test_rest_of_a_message_survives_where_values_are_discarded(
    streams: Streams,
) -> None:
    ddl = "id bigint, at timestamp, deep struct<n: int, s: string>, list array<int>"
    messages = [
        {"id": 1, "at": "no time", "deep": {"n": "x", "s": "y"}, "list": [1]},
        {"id": 2, "at": "2024-01-01T00:00:00Z", "deep": {"n": 1}, "list": [2**40]},
        {"id": 2**70, "deep": {"n": 2**40, "s": "y"}, "list": ["x"]},
    ]
    payloads = [json.dumps(message).encode() for message in messages]
    found = read(
        streams, "json", payloads, schema=ddl, schema__contract="discard_value"
    )
    assert found["id"] == [1, 2, None]
    assert [at is None for at in found["at"]] == [True, False, True]
    assert found["deep"] == [None, {"n": 1, "s": None}, None]
    assert found["list"] == [[1], None, None]


def test_undeclared_field_within_a_struct_is_one_as_well(streams: Streams) -> None:
    payloads = [b'{"deep": {"n": 1}}', b'{"deep": {"n": 2, "more": 3}}']
    found = read(
        streams,
        "json",
        payloads,
        schema="deep struct<n: int>",
        schema__contract="discard_row",
    )
    assert found == {"deep": [{"n": 1}]}


@pytest.mark.parametrize(
    "contract", ["freeze", "evolve", "discard_row", "discard_value"]
)
def test_what_is_no_message_at_all_stays_bad_under_every_contract(
    streams: Streams, contract: str
) -> None:
    with pytest.raises(DecodeError) as caught:
        read(streams, "json", [b'{"id": 1', b"[]"], schema__contract=contract)
    assert caught.value.offset == 0


def test_groups_of_a_pattern_that_are_not_declared_are_refused(
    streams: Streams,
) -> None:
    pattern = {"stream__memory__decoder__prop__pattern": "(?P<id>.) (?P<more>.)"}
    contract = {"schema": "id bigint", "schema__contract": "freeze"}
    with pytest.raises(DecodeError):
        read(streams, "text", [b"1 2"], **pattern, **contract)


# --- letters in another case ----------------------------------------------------


@pytest.mark.parametrize("decoder", FORMATS)
def test_key_in_another_case_than_its_column_is_reported_once(
    streams: Streams, decoder: str, caplog: pytest.LogCaptureFixture
) -> None:
    messages = {
        "csv": b"Id,size\n1,2",
        "arrow": ipc(Id=1, size=2),
    }.get(decoder, b'{"Id": 1, "size": 2}')
    options = {"schema__contract": "evolve"} if decoder == "parsing" else {}
    with caplog.at_level(logging.WARNING):
        found = read(streams, decoder, [messages] * 5, **options)
    assert found == {"id": [None] * 5, "size": [2] * 5}
    what = "messages have a field whose name differs only in the case"
    logged = [record.getMessage() for record in caplog.records]
    assert logged.count(f"column 'id': {what}; the field is not read") == 1


def test_existing_column_has_no_lookalike(
    streams: Streams, caplog: pytest.LogCaptureFixture
) -> None:
    read(streams, "json", [b'{"id": 1, "ID": 2, "Size": null, "size": 3}'])
    assert caplog.records == []


# --- avro, and answers that contradict themselves -------------------------------


def record(*names: str, **types: Any) -> Any:
    fields = [{"name": name, "type": "long"} for name in names]
    fields += [{"name": name, "type": kind} for name, kind in types.items()]
    return {"type": "record", "name": "r", "fields": fields}


@pytest.mark.parametrize(
    ("writer", "wanted", "undeclared"),
    [
        (record("a"), record("a"), False),
        (record("a", "b"), record("a"), True),
        (record("a"), {**record("a"), "fields": record("a")["fields"]}, False),
        (
            record(s={**record("a", "b"), "name": "s"}),
            record(s={**record("a"), "name": "s"}),
            True,
        ),
        (
            record(s=["null", {**record("a", "b"), "name": "s"}]),
            record(s=["null", {**record("a"), "name": "s"}]),
            True,
        ),
        (
            record("old"),
            {
                **record(),
                "fields": [{"name": "new", "type": "long", "aliases": ["old"]}],
            },
            False,
        ),
    ],
)
def test_avro_compares_the_schema_that_was_written_with_the_declared_one(
    writer: Any, wanted: Any, undeclared: bool
) -> None:
    nodes = [parse(json.dumps(schema)) for schema in (writer, wanted)]
    assert AvroBatchDecoder(*nodes).undeclared is undeclared


@pytest.mark.parametrize("rows", [[1], [-1], [0, 0]])
def test_misfits_of_rows_that_are_not_there_break_the_contract(
    streams: Streams, rows: list[int]
) -> None:
    def answer(values: pa.Array) -> Decoded:
        batch = pa.record_batch(
            {"id": pa.array([1]), "size": pa.array([1], pa.int32())}
        )
        misfit = Misfit(pa.array(rows, pa.int32()), None, "it does not fit")
        return Decoded(batch, misfits=[misfit])

    streams.plugins.unregister(DECODERS, "words")
    streams.plugins.register(decoding(answer, Parsing({}, "t").schema()))
    streams.messages("from", [b"x"])
    named = {"stream__memory__decoder__class__name": "words"}
    streams.define("from", **named)
    with (
        pytest.raises(ContractBroken, match="the indices of misfits are not ascending"),
        open_stream("from", plugins=streams.plugins) as stream,
    ):
        list(stream)
