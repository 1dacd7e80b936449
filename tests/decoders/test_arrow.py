"""Arrow messages: streams, batches alone, and bytes that pretend to be either."""

from __future__ import annotations

import struct
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.decoders import decoding
from tests.proving.generated import cases

from streamfactory.arrowipc.columns import plain_batches
from streamfactory.decoders.arrow import streamfactory_decoder
from streamfactory.decoders.arrow.decoder import ArrowDecoder, ArrowEncoder
from streamfactory.decoders.arrow.harness import ArrowHarness
from streamfactory.decoders.isolation import places
from streamfactory.spi import (
    ConfigError,
    Decoded,
    SchemaMismatch,
    SchemaUnknown,
)

if TYPE_CHECKING:
    from pathlib import Path

DDL = "id bigint, name string"
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


def decode(payloads: list[bytes], ddl: str = DDL, limit: int = 1 << 28) -> Decoded:
    options = decoding.options(streamfactory_decoder(), ddl, max_message_bytes=limit)
    return decoding.decode(ArrowDecoder(options, "topic"), payloads)


def rows(count: int, first: int = 0) -> pa.RecordBatch:
    numbers = range(first, first + count)
    return pa.record_batch(
        [pa.array(numbers, pa.int64()), [f"n{at}" for at in numbers]], schema=SCHEMA
    )


def alone(batch: pa.RecordBatch, compression: str | None = None) -> bytes:
    options = pa.ipc.IpcWriteOptions(compression=compression)
    if compression is None:
        return bytes(batch.serialize())
    whole = stream(batch, options=options)
    head = 8 + struct.unpack_from("<i", whole, 4)[0]  # behind the schema
    return whole[head:-8]


def stream(*batches: pa.RecordBatch, options: Any = None) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue())


def only_error(decoded: Decoded) -> tuple[str, str]:
    [error] = decoded.errors
    assert decoded.rows.num_rows == 0
    return error.code, error.what


def test_streams_and_batches_of_any_number_of_rows() -> None:
    payloads = [
        stream(rows(2), rows(3, 2)),
        alone(rows(1, 5)),
        alone(rows(0)),
        stream(rows(0)),
        alone(rows(4, 6), "zstd"),
        stream(rows(1, 10), options=pa.ipc.IpcWriteOptions(compression="lz4")),
    ]
    decoded = decode(payloads)
    assert not decoded.errors
    assert decoded.rows.equals(rows(11))
    assert decoded.source is not None
    assert decoded.source.to_pylist() == [0] * 5 + [1] + [4] * 4 + [5]


def test_usual_batches_are_read_without_a_closer_look() -> None:
    payloads = [alone(rows(at % 5 + 1, at)) for at in range(100)]
    found = plain_batches(*places(pa.array(payloads, pa.binary())))
    assert found.all()
    odd = [
        alone(rows(3), "lz4"),
        stream(rows(3)),
        b"",
        b"\xff" * 40,
        payloads[0] + b"x",
    ]
    assert not plain_batches(*places(pa.array(odd, pa.binary()))).any()


def test_columns_are_found_by_their_names_and_cast_where_nothing_is_lost() -> None:
    other = pa.record_batch(
        {
            "more": [1, 2],
            "name": pa.array(["a", "b"]).dictionary_encode(),
            "id": pa.array([1, 2], pa.int16()),
        }
    )
    assert decode([stream(other)]).rows.to_pylist() == [
        {"id": 1, "name": "a"},
        {"id": 2, "name": "b"},
    ]
    lacking = pa.record_batch({"id": pa.array([3], pa.int64())})
    assert decode([stream(lacking)]).rows.to_pylist() == [{"id": 3, "name": None}]


@pytest.mark.parametrize(
    ("ddl", "column", "what"),
    [
        ("a bigint", pa.array(["1"]), "column 'a' does not have the type bigint"),
        ("a timestamp", pa.array([datetime(2013, 1, 1)]), "does not have the type"),  # noqa: DTZ001
        ("a float", pa.array([0.1]), "does not have the type"),
        ("a smallint", pa.array([70_000]), "has values that do not fit smallint"),
        ("a bigint not null", None, "column 'a' occurs 0 times instead of once"),
        ("a string", pa.array(["x"], pa.string_view()), "does not have the type"),
    ],
)
def test_columns_that_do_not_fit_make_a_message_bad(
    ddl: str, column: Any, what: str
) -> None:
    batch = pa.record_batch({"b": [1]} if column is None else {"a": column})
    code, found = only_error(decode([stream(batch)], ddl))
    assert code == "schema"
    assert what in found


def test_nulls_where_none_may_be_make_a_message_bad() -> None:
    good, bad = (pa.record_batch({"a": pa.array([v], pa.int64())}) for v in (1, None))
    for write in (alone, stream):
        decoded = decode([write(good), write(bad), write(good)], "a bigint not null")
        assert [error.message for error in decoded.errors] == [1]
        assert decoded.rows.column("a").to_pylist() == [1, 1]


# --- hostile bytes ------------------------------------------------------------------


def test_a_message_that_expands_beyond_its_limit_is_refused_before_it_does() -> None:
    zeros = pa.record_batch({"a": np.zeros(1 << 22, np.int64)})
    for write in (alone, lambda b, c: stream(b, options=_compressed(c))):
        payload = write(zeros, "zstd")
        assert len(payload) < 1 << 16
        code, what = only_error(decode([payload], "a bigint", 1 << 24))
        assert code == "too_large"
        assert what == ("the decompressed message exceeds 16777216 bytes")
        assert decode([payload], "a bigint").rows.num_rows == 1 << 22


def _compressed(word: str) -> Any:
    return pa.ipc.IpcWriteOptions(compression=word)


def test_a_dictionary_that_expands_beyond_the_limit_is_refused() -> None:
    words = pa.array(["x" * (1 << 20)])
    indices = pa.array(np.zeros(10_000, np.int8))
    column = pa.DictionaryArray.from_arrays(indices, words)
    payload = stream(pa.record_batch({"a": column}))
    code, what = only_error(decode([payload], "a string"))
    assert (code, what) == (
        "too_large",
        "the decompressed message exceeds 67108864 bytes",
    )
    assert decode([stream(pa.record_batch({"a": column[:60]}))], "a string").rows


@pytest.mark.parametrize("scale", [39, 1000, 536870915, -40])
def test_a_decimal_with_a_scale_that_no_decimal_has_is_refused(scale: int) -> None:
    """In a cast, a scale of 1000 became 0.000, and 536870915 ended the process."""
    kind = pa.decimal128(20, scale)
    value = pa.py_buffer((5).to_bytes(16, "little"))
    column = pa.Array.from_buffers(kind, 1, [None, value])
    payload = stream(pa.record_batch({"d": column}))
    code, what = only_error(decode([payload], "d decimal(20, 3)"))
    assert code == "schema"
    assert what.startswith(f"column 'd': decimal128(20, {scale}) has a precision or ")


def test_decimals_whose_scales_are_too_far_apart_are_not_cast() -> None:
    """Arrow 26 multiplies by what lies beyond its table of powers of ten."""
    value = pa.py_buffer((5).to_bytes(16, "little"))
    column = pa.Array.from_buffers(pa.decimal128(38, -20), 1, [None, value])
    payload = stream(pa.record_batch({"d": column}))
    code, what = only_error(decode([payload], "d decimal(38, 30)"))
    assert (code, what) == (
        "schema",
        "column 'd' does not have the type decimal(38,30)",
    )


@pytest.mark.parametrize("write", [alone, stream])
def test_messages_are_validated_before_they_are_joined(write: Any) -> None:
    lists = pa.record_batch({"a": pa.array([["x"], ["y", "z"]])})
    good = write(lists)
    offsets = struct.pack("<3i", 0, 1, 3)
    assert good.count(offsets) == 1
    bad = good.replace(offsets, struct.pack("<3i", 0, 2**30, 3))
    decoded = decode([good, bad, good], "a array<string>")
    assert [(e.message, e.code) for e in decoded.errors] == [(1, "malformed")]
    assert decoded.rows.num_rows == 4


def test_rows_that_have_no_bytes_are_refused() -> None:
    good = bytearray(alone(rows(7)))
    at = good.index(struct.pack("<q", 7))
    for count in (2**62, -1, 10**9):
        bad = bytes(good[:at] + struct.pack("<q", count) + good[at + 8 :])
        assert only_error(decode([bad]))[0] == "malformed"
    nothing = pa.RecordBatch.from_arrays([pa.nulls(10**9)], ["a"])
    assert only_error(decode([alone(nothing)]))[0] == "malformed"


@pytest.mark.parametrize("write", [alone, stream])
def test_a_message_cut_anywhere_is_bad(write: Any) -> None:
    whole = write(rows(3))
    decoded = decode([whole[:at] for at in range(len(whole))])
    assert [error.message for error in decoded.errors] == list(range(len(whole)))
    assert decoded.rows.num_rows == 0


@pytest.mark.parametrize("write", [alone, stream])
def test_what_follows_a_message_makes_it_bad(write: Any) -> None:
    whole = write(rows(3))
    for junk in (b"\0", bytes(8), whole, b"\xff\xff\xff\xff\0\0\0\0"):
        assert only_error(decode([whole + junk]))[0] == "malformed"


@settings(
    max_examples=cases(400), deadline=None, suppress_health_check=list(HealthCheck)
)
@given(data=st.data())
def test_changed_bytes_are_never_more_than_a_bad_message(data: st.DataObject) -> None:
    base = data.draw(
        st.sampled_from(
            [
                alone(rows(5)),
                stream(rows(5)),
                alone(rows(50), "lz4"),
                stream(rows(50), options=_compressed("zstd")),
                stream(pa.record_batch({"name": pa.array(["a"]).dictionary_encode()})),
            ]
        )
    )
    payload = bytearray(base)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(payload) - 1))
        payload[at] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
    good = alone(rows(2, 7))
    decoded = decode([good, bytes(payload), good], limit=1 << 20)
    assert {error.message for error in decoded.errors} <= {1}
    assert decoded.source is not None
    kept = [at for at, of in enumerate(decoded.source.to_pylist()) if of != 1]
    assert decoded.rows.take(kept).to_pylist() == rows(2, 7).to_pylist() * 2


def test_text_that_is_no_utf8_is_bad_and_its_neighbours_are_kept() -> None:
    good = [alone(rows(1, at)) for at in range(10, 60)]
    payloads = [p.replace(b"n10", b"\xff\xfe\xff") for p in good]
    decoded = decode(payloads)
    assert decoding.bad(decoded) == [(0, "malformed")]
    assert decoded.rows.column("id").to_pylist() == list(range(11, 60))


def test_exactly_the_bad_ones_among_many_are_reported() -> None:
    payloads = [alone(rows(at % 3, at)) for at in range(20_000)]
    rng = np.random.default_rng(1)
    bad = sorted(rng.choice(len(payloads), 20, replace=False).tolist())
    for at in bad:
        payloads[at] = [payloads[at][:-1], payloads[at] + b"\0", b"{}", b""][at % 4]
    decoded = decode(payloads)
    assert [error.message for error in decoded.errors] == bad
    assert decoded.source is not None
    chosen = set(bad)
    kept = [
        at for at in range(len(payloads)) if at not in chosen for _ in range(at % 3)
    ]
    assert decoded.source.to_pylist() == kept


# --- schemas ------------------------------------------------------------------------


def test_a_file_has_the_schema(tmp_path: Path) -> None:
    path = tmp_path / "rows.arrow"
    for opened in (pa.ipc.new_file, pa.ipc.new_stream):
        with path.open("wb") as file, opened(file, SCHEMA) as writer:
            writer.write_batch(rows(1))
        made = ArrowDecoder({"schema.file": str(path)}, "topic")
        assert made.schema() == SCHEMA
    path.write_bytes(b"nothing")
    with pytest.raises(ConfigError) as caught:
        ArrowDecoder({"schema.file": str(path)}, "topic")
    assert (
        "cannot be read: the file is neither an Arrow stream nor an Arrow file"
        in str(caught.value)
    )


def test_a_dictionary_is_no_type_of_rows(tmp_path: Path) -> None:
    path = tmp_path / "rows.arrow"
    schema = pa.schema([("a", pa.dictionary(pa.int8(), pa.string()))])
    with path.open("wb") as file:
        pa.ipc.new_stream(file, schema).close()
    with pytest.raises(ConfigError) as caught:
        ArrowDecoder({"schema.file": str(path)}, "topic")
    assert "declare the plain type of its values" in str(caught.value)


def test_no_schema_is_an_error_with_a_remedy() -> None:
    with pytest.raises(SchemaUnknown) as caught:
        ArrowDecoder({}, "clicks")
    assert str(caught.value) == (
        "the schema of topic 'clicks' is unknown; give decoder.prop.schema or "
        "decoder.prop.schema.file"
    )


# --- the way back -------------------------------------------------------------------


@pytest.mark.parametrize("payload", ["stream", "batch"])
def test_each_row_is_a_message(payload: str) -> None:
    encoder = ArrowEncoder({"payload": payload}, "topic")
    payloads = encoder.encode(rows(5)).to_pylist()
    assert len(payloads) == 5
    assert decode(payloads).rows.equals(rows(5))
    if payload == "stream":
        assert pa.ipc.open_stream(payloads[3]).read_all().to_batches()[0] == rows(1, 3)


def test_rows_that_are_not_of_the_declared_schema_are_refused() -> None:
    encoder = ArrowEncoder({"schema": "id bigint"}, "topic")
    assert len(encoder.encode(pa.record_batch({"id": pa.array([1], pa.int8())}))) == 1
    with pytest.raises(SchemaMismatch) as caught:
        encoder.encode(pa.record_batch({"x": [1]}))
    assert caught.value.what == "column 'x' is not in the declared schema"


def test_flights_go_there_and_back() -> None:
    table = decoding.flights()
    payloads = [alone(batch) for batch in table.to_batches(max_chunksize=100)]
    payloads += [stream(batch) for batch in table.to_batches(max_chunksize=1000)]
    ddl = ", ".join(
        f"{field.name} {({'int64': 'bigint'}).get(str(field.type), str(field.type))}"
        for field in table.schema
    )
    decoded = decode(payloads, ddl)
    assert not decoded.errors
    assert pa.Table.from_batches([decoded.rows]).equals(
        pa.concat_tables([table, table])
    )


def test_the_kit_finds_nothing() -> None:
    assert decoding.complaints(streamfactory_decoder(), ArrowHarness) == []
