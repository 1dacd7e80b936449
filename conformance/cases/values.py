"""R1, W8, W9: values of any bytes, and of any length up to the greatest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streamfactory.conformance.case import case
from streamfactory.conformance.cases.envelopes import (
    LONG,
    envelopes,
    long_key,
    require_one_medium,
)
from streamfactory.conformance.cases.reading import ROWS
from streamfactory.conformance.expectations import (
    Excluded,
    expect,
    expect_error,
    require,
)
from streamfactory.conformance.harness import WritesRows, WritesValues
from streamfactory.spi import EpochVisibility, MessageTooLarge, Yields

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from streamfactory.conformance.bench import Bench
    from streamfactory.spi import MessageBatch


@case(
    "R1",
    abilities=(WritesValues,),
    hint="a buffer has a fixed length, or what max_bytes cuts off is dropped",
    needs=ROWS,
)
def values_of_any_length_are_read_whole(bench: Bench) -> None:
    """Empty values, values of a byte and the largest are read, whatever max_bytes."""
    number, longest = bench.create(), _longest(bench)
    lengths = [0, 1, longest, 0, longest - 1, 1, LONG - 1, LONG, LONG + 1, 1]
    values = [_of_length(length) for length in lengths if length <= longest]
    bench.note(f"write_values({number}, values of {[*map(len, values)]} bytes)")
    bench.use(WritesValues).write_values(number, values)
    found = envelopes(bench, number, len(values))
    _expect_equal(found["value"].to_pylist(), values, "of a consumer")
    offsets = found["offset"].to_pylist()
    reader, latest = bench.reader(number), offsets[-1] + 1
    for most in (1, longest - 1, longest, longest + 1):
        batches = bench.batches(reader, offsets[0], latest, max_bytes=most)
        _expect_equal(_read(batches), values, f"with max_bytes={most}")
    for first in range(1, len(values) - 1):
        batches = bench.batches(reader, offsets[first], offsets[first + 1])
        _expect_equal(_read(batches), values[first : first + 1], "read alone")


@case(
    "W8",
    abilities=(WritesRows,),
    writing=True,
    hint="an empty value is stored, or read, as null; bytes are taken for text",
    needs=("carried_columns_come_back",),
)
def any_bytes_come_back_as_they_were_written(bench: Bench) -> None:
    """Each of all bytes, empty values and keys, and long ones come back unchanged."""
    number, schema = bench.create(), _message_schema(bench)
    values = [b"", b"\x00", b"a\x00b", b"\xff\xfe\x80", b"v" * LONG, b"", b""]
    # A format of its own may have a byte for what is missing.
    values += [bytes([byte]) for byte in range(256)] + [b"last"]
    rows = pa.record_batch([pa.array(values, pa.binary())], schema=schema)
    sink = bench.sink()
    if "_key" in sink.factory.CARRIES:
        keys = [b"", None, b"\x00", b"\xff\x00", long_key(bench), b"k", None]
        keys += [bytes([byte]) for byte in reversed(range(256))] + [b""]
        rows = rows.append_column("_key", pa.array(keys, pa.binary()))
    bench.note(f"write({len(values)} values, the longest of {LONG} bytes)")
    writer = bench.closing(sink.writer(rows.schema, writer_id="bytes", epoch=0))
    writer.write(rows)
    bench.closing(sink.committer(writer_id="bytes")).commit(0, [writer.commit()])
    found = envelopes(bench, number, len(values))
    for name in rows.schema.names:
        got = found["value" if name == schema.names[0] else name.removeprefix("_")]
        expect(got.to_pylist(), rows[name].to_pylist(), f"{name} read back")


@case(
    "W8",
    abilities=(WritesRows,),
    writing=True,
    hint="the limit is one less than stated, or a long row is split or cut",
    needs=("carried_columns_come_back",),
)
def the_largest_value_comes_back_whole(bench: Bench) -> None:
    """A value of exactly `largest_value` bytes is written, and read back alone."""
    schema, values = _message_schema(bench), _around(bench, 0)
    number, sink = bench.create(), bench.sink()
    rows = pa.record_batch([pa.array(values, pa.binary())], schema=schema)
    bench.note(f"write(values of {[len(value) for value in values]} bytes)")
    writer = bench.closing(sink.writer(schema, writer_id="longest", epoch=0))
    writer.write(rows)
    bench.closing(sink.committer(writer_id="longest")).commit(0, [writer.commit()])
    found = envelopes(bench, number, len(values))
    _expect_equal(found["value"].to_pylist(), values, "of a consumer")
    reader, start = bench.reader(number), found["offset"][0].as_py()
    latest = found["offset"][-1].as_py() + 1
    # What is longer than max_bytes is returned alone, and as a whole (rule R1).
    batches = bench.batches(reader, start, latest, max_bytes=1)
    read = [_values(batch.rows) for batch in batches if batch.num_rows]
    counts = [len(part) for part in read]
    expect(counts, [1] * len(values), "rows of each result with max_bytes=1")
    alone = [value for part in read for value in part]
    _expect_equal(alone, values, "with max_bytes=1")


@case(
    "W9",
    abilities=(WritesRows,),
    writing=True,
    hint="a value that is too long is cut, or its refusal is retried",
    needs=("the_largest_value_comes_back_whole",),
)
def a_value_above_the_largest_is_refused_with_its_row(bench: Bench) -> None:
    """A value of one byte more is MessageTooLarge; the error has the row's number."""
    schema, values = _message_schema(bench), _around(bench, 1)
    number, sink = bench.create(), bench.sink()
    isolated = sink.factory.claims().epoch_visibility is not EpochVisibility.NONE
    writer = bench.closing(sink.writer(schema, writer_id="longer", epoch=0))
    bench.note(f"write(values of {[len(value) for value in values]} bytes)")
    before, rest = (
        pa.record_batch([pa.array(part, pa.binary())], schema=schema)
        for part in (values[:1], [values[0], *values[1:]])
    )

    def write() -> None:
        writer.write(before)
        writer.write(rest)
        writer.commit()

    what = f"a value of {len(values[1])} bytes"
    error = expect_error(MessageTooLarge, what, write)
    # Rows are counted from the beginning of the attempt.
    require("row 2 " in str(error), f"the error does not name row 2: {error}")
    writer.abort()
    small = values[-1]
    again = bench.closing(sink.writer(schema, writer_id="longer", epoch=0))
    again.write(pa.record_batch([pa.array([small], pa.binary())], schema=schema))
    bench.closing(sink.committer(writer_id="longer")).commit(0, [again.commit()])
    found = envelopes(bench, number, 1)["value"].to_pylist()
    if isolated:
        lengths = [len(value) for value in found]
        expect(lengths, [len(small)], "lengths of values after the refused one")
    require(found[-1] == small, "the value after the refused one is not read back")


def _message_schema(bench: Bench) -> pa.Schema:
    """The schema of rows whose one column is the bytes of messages."""
    require_one_medium(bench)
    schema = bench.use(WritesRows).rows([0]).schema
    if bench.backend.yields is not Yields.ENVELOPE or schema.types != [pa.binary()]:
        msg = "rows are not the bytes of messages"
        raise Excluded(msg)
    return schema


def _longest(bench: Bench) -> int:
    """The length of the longest value; of a long one, where none is stated."""
    if bench.traits.largest_value is not None:
        return bench.traits.largest_value
    bench.narrow(f"values of more than {LONG + 1} bytes are not tried", "largest_value")
    return LONG + 1


def _around(bench: Bench, more: int) -> list[bytes]:
    """Three values, of which the second has so many bytes more than the largest."""
    largest = bench.traits.largest_value
    if largest is None:
        msg = f"the harness states no largest_value{bench.reason(['largest_value'])}"
        raise Excluded(msg)
    return [b"first", _of_length(largest + more), b"last"]


def _of_length(length: int) -> bytes:
    """Bytes of which no part is repeated: one that is missing or twice is noticed."""
    return b"".join(at.to_bytes(4) for at in range(length // 4 + 1))[:length]


def _read(batches: Iterable[MessageBatch]) -> list[bytes]:
    return [value for batch in batches for value in _values(batch.rows)]


def _values(rows: pa.RecordBatch) -> list[Any]:
    found: list[Any] = rows["value"].to_pylist()
    return found


def _expect_equal(found: Sequence[bytes], values: Sequence[bytes], how: str) -> None:
    """Compare values; of long ones the report shows the lengths alone."""
    expect([*map(len, found)], [*map(len, values)], f"lengths of values {how}")
    require(found == values, f"values {how} have other bytes")
