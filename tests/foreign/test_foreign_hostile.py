"""Hostile files: reported by name, without a crash, a hang or needless memory."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.foreign.stage import NUMBERS, numbers, write_random, write_stream
from tests.proving.tiers import sample

from streamfactory.arrowipc import target, vector
from streamfactory.backends.file.foreign.framing import field, table
from streamfactory.spi import (
    BatchState,
    CorruptData,
    FetchLimits,
    FormatRefused,
    MessageTooLarge,
    SchemaMismatch,
)
from streamfactory.spi.soundness import UNPACKED_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
NOW = FetchLimits(1_000_000, 1 << 30, 0.0)
HEAD = len(NUMBERS.serialize())
"""Where the first batch of a stream of numbers begins."""


def refused(values_of: Callable[..., Any], path: Path, **options: str) -> str:
    with pytest.raises((CorruptData, FormatRefused)) as caught:
        values_of(path, **options)
    assert str(path) in caught.value.what
    return caught.value.what


def patched(path: Path, at: int, form: str, *values: int) -> Path:
    data = bytearray(path.read_bytes())
    struct.pack_into(form, data, at, *values)
    path.write_bytes(data)
    return path


@pytest.mark.slow("many damaged files")
@pytest.mark.parametrize(
    "files",
    sample(
        [400, 1200],
        "more damaged files",
        shown_by="tests/foreign/test_foreign_hostile.py::test_damaged_files_are_reported_without_a_crash",
    ),
)
def test_damaged_files_are_reported_without_a_crash(files: int, tmp_path: Path) -> None:
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.foreign.mangle"]
    done = subprocess.run(
        [*command, str(tmp_path), "1", str(files)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    assert "FOREIGN" not in done.stdout
    lines = [line.split() for line in done.stdout.splitlines()]
    counts = {name: int(count) for count, name in lines}
    assert sum(counts.values()) == files
    assert counts["CorruptData"] > files / 4
    assert counts["read"] > files / 12


@pytest.mark.parametrize("length", [2**30, 2**31 - 1, 2**32 - 9])
def test_metadata_that_cannot_be_so_long_is_reported(
    length: int, tmp_path: Path, values_of: Callable[..., Any]
) -> None:
    path = patched(write_stream(tmp_path / "a", numbers(1)), HEAD + 4, "<I", length)
    assert f"would mean {length} bytes of metadata" in refused(values_of, path)


def test_metadata_beyond_the_file_is_waited_for(
    tmp_path: Path, consumer_factory: Callable[..., Any]
) -> None:
    path = patched(write_stream(tmp_path / "a", numbers(1)), HEAD + 4, "<I", 2**20)
    found = consumer_factory(path).fetch_messages(0, None, NOW)
    assert (found.rows, found.state) == (None, BatchState.CAUGHT_UP)


def body_length_of(data: bytes, at: int) -> int:
    return field(data, target(data, at + 8), 3)


@pytest.mark.parametrize("length", [-1, -(2**63), 2**40, 2**63 - 1])
def test_body_that_cannot_be_so_long_is_reported(
    length: int, tmp_path: Path, values_of: Callable[..., Any]
) -> None:
    path = write_stream(tmp_path / "a", numbers(1))
    patched(path, body_length_of(path.read_bytes(), HEAD), "<q", length)
    assert f"declares a body of {length} bytes" in refused(values_of, path)


def test_messages_longer_than_the_limit_are_reported(
    tmp_path: Path, values_of: Callable[..., Any]
) -> None:
    path = write_stream(tmp_path / "a", numbers(*range(1000)))
    assert values_of(path, message__max__bytes="16K") == list(range(1000))
    what = refused(values_of, path, message__max__bytes="4K")
    assert what.endswith("declares a body of 8000 bytes, message.max.bytes is 4096")


@pytest.mark.parametrize("rows", [-1, 2**48, 2**63 - 1])
def test_impossible_number_of_rows_is_reported(
    rows: int, tmp_path: Path, values_of: Callable[..., Any]
) -> None:
    path = write_stream(tmp_path / "a", numbers(1))
    data = path.read_bytes()
    batch = table(data, target(data, HEAD + 8), 2)
    patched(path, field(data, batch, 0), "<q", rows)
    assert "cannot be parsed" in refused(values_of, path)


@pytest.mark.parametrize("stated", [2**40, 2**62, -2, -(2**63)])
@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_compressed_buffer_that_lies_about_its_length_is_reported(
    codec: str, stated: int, tmp_path: Path, values_of: Callable[..., Any]
) -> None:
    path = write_stream(tmp_path / "a", numbers(*range(1000)), compression=codec)
    data = path.read_bytes()
    message = target(data, HEAD + 8)
    body = HEAD + 8 + struct.unpack_from("<I", data, HEAD + 4)[0]
    begin, count = vector(data, field(data, table(data, message, 2), 2))
    offset, length = struct.unpack_from("<qq", data, begin + 16 * (count - 1))
    assert length > 8
    patched(path, body + offset, "<q", stated)
    what = refused(values_of, path)
    if stated > 0:
        assert (
            f"the decompressed message has {stated} bytes, message.max.bytes is "
            f"{4 * 1024**3}" in what
        )


@pytest.mark.parametrize("length", [-1, 0, 7, 2**31 - 1])
def test_footer_that_lies_about_its_length_is_reported(
    length: int, tmp_path: Path, values_of: Callable[..., Any]
) -> None:
    path = write_random(tmp_path / "a", numbers(1))
    patched(path, path.stat().st_size - 10, "<i", length)
    assert f"the footer declares {length} bytes" in refused(values_of, path)


@pytest.mark.parametrize("offset", [-8, 0, 2**40])
def test_footer_that_points_elsewhere_is_reported(
    offset: int, tmp_path: Path, values_of: Callable[..., Any]
) -> None:
    path = write_random(tmp_path / "a", numbers(1))
    data = path.read_bytes()
    begin = len(data) - 10 - struct.unpack_from("<i", data, len(data) - 10)[0]
    footer = data[begin:-10]
    block, _ = vector(footer, field(footer, target(footer, 0), 3))
    patched(path, begin + block, "<q", offset)
    assert "the footer names a message outside of the file" in refused(values_of, path)


def write_lying(path: Path, column: pa.Array, buffer: int, data: bytes) -> Path:
    """A column with other bytes in one of its buffers."""
    sound = pa.record_batch({"number": column}).serialize().to_pybytes()
    before = column.buffers()[buffer].to_pybytes()[: len(data)]
    assert sound.count(before) == 1
    schema = pa.schema({"number": column.type}).serialize().to_pybytes()
    path.write_bytes(schema + sound.replace(before, data))
    return path


def offsets(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}i", *values)


TEXT = pa.array(["one", "three", "eleven"])
LISTS = pa.array([[11, 12, 13], [14], [15, 16]], pa.list_(pa.int16()))


@pytest.mark.parametrize(
    ("column", "values"),
    [
        (TEXT, (0, 3, 2**30, 14)),
        (TEXT, (0, 3, -5, 14)),
        (TEXT, (0, 3, 8, 2**30)),
        (TEXT, (-9, 3, 8, 14)),
        (LISTS, (0, 3, 2**30, 6)),
        (LISTS, (0, 3, 4, 2**20)),
        (TEXT.cast(pa.binary()), (0, 9, 8, 14)),
    ],
)
def test_offsets_outside_of_their_buffer_are_reported(
    column: pa.Array,
    values: tuple[int, ...],
    tmp_path: Path,
    values_of: Callable[..., Any],
) -> None:
    path = write_lying(tmp_path / "a", column, 1, offsets(*values))
    assert "batch 0 at byte " in refused(values_of, path)


def test_indices_outside_of_their_dictionary_are_reported(
    tmp_path: Path, values_of: Callable[..., Any]
) -> None:
    indices = pa.array([3, 2, 1, 0, 3, 2, 1, 0], pa.int8())
    column = pa.DictionaryArray.from_arrays(indices, ["a", "b", "c", "d"])
    path = write_stream(tmp_path / "a", pa.record_batch({"w": column}))
    data = path.read_bytes()
    before = bytes([3, 2, 1, 0, 3, 2, 1, 0])
    assert data.count(before) == 1
    path.write_bytes(data.replace(before, bytes([3, 2, 1, 0, 3, 2, 100, 0])))
    assert "column 'w'" in refused(values_of, path)


@pytest.mark.parametrize(
    ("column", "before", "after"),
    [
        (pa.array([77777], pa.time32("s")), 77777, 86400),
        (pa.array([77777 * 10**6], pa.time64("us")), 77777 * 10**6, -1),
        (pa.array([86_400_000]).view(pa.date64()), 86_400_000, 86_400_001),
    ],
)
def test_times_outside_of_a_day_and_parts_of_days_are_reported(
    column: pa.Array,
    before: int,
    after: int,
    tmp_path: Path,
    values_of: Callable[..., Any],
) -> None:
    form = "<i" if column.type == pa.time32("s") else "<q"
    path = write_stream(tmp_path / "a", pa.record_batch({"number": column}))
    data = path.read_bytes()
    assert data.count(struct.pack(form, before)) == 1
    damaged = data.replace(struct.pack(form, before), struct.pack(form, after))
    path.write_bytes(damaged)
    assert "column 'number'" in refused(values_of, path)


@pytest.mark.parametrize("rows", [5, 5000])
def test_a_wrong_number_of_nulls_is_reported(
    rows: int, tmp_path: Path, values_of: Callable[..., Any]
) -> None:
    """Sums and filters rely on it: rows would be lost without a word."""
    column = pa.array([None, *range(rows - 1)], pa.int64())
    path = write_stream(tmp_path / "a", pa.record_batch({"number": column}))
    data = path.read_bytes()
    node = struct.pack("<qq", rows, 1)
    assert data.count(node) == 1
    path.write_bytes(data.replace(node, struct.pack("<qq", rows, 3)))
    assert "null_count value (3)" in refused(values_of, path)


def shared_words() -> pa.Array:
    indices = pa.array([0] * 100_000, pa.int8())
    return pa.DictionaryArray.from_arrays(indices, ["x" * 20_000])


def shared_list() -> pa.Array:
    count = 20_000
    begins, sizes = ([0] * count, [100_000] * count)
    numbers = (pa.array(each, pa.int32()) for each in (begins, sizes))
    return pa.ListViewArray.from_arrays(*numbers, pa.array([0] * 100_000))


def shared_text() -> pa.Array:
    view = struct.pack("<i4sii", 20_000, b"xxxx", 0, 0)
    buffers = [None, pa.py_buffer(view * 100_000), pa.py_buffer(b"x" * 20_000)]
    return pa.Array.from_buffers(pa.string_view(), 100_000, buffers)


@pytest.mark.parametrize("make", [shared_words, shared_list, shared_text])
def test_a_small_file_that_stands_for_gigabytes_is_read_in_pieces(
    make: Callable[[], pa.Array],
    tmp_path: Path,
    consumer_factory: Callable[..., Any],
) -> None:
    column = make()
    rows = pa.record_batch({"number": pa.arange(0, len(column)), "c": column})
    path = write_random(tmp_path / "a", rows, compression="zstd")
    consumer = consumer_factory(path)
    before = pa.total_allocated_bytes()
    at = 0
    for _ in range(3):
        found = consumer.fetch_messages(at, None, NOW)
        assert found.rows["number"].to_pylist() == list(range(at, found.next_offset))
        assert found.rows.schema.field("c").type in (pa.string(), pa.list_(pa.int64()))
        assert pa.total_allocated_bytes() - before < 4 * UNPACKED_BYTES
        at = found.next_offset
    # Anywhere in the file, and what was read before.
    for at in (len(column) - 1, 7):
        found = consumer.fetch_messages(at, None, NOW)
        assert found.rows["number"][0].as_py() == at


def test_a_row_that_stands_for_gigabytes_is_reported(
    tmp_path: Path, values_of: Callable[..., Any]
) -> None:
    lists = shared_list()
    column = pa.ListArray.from_arrays(pa.array([0, len(lists)], pa.int32()), lists)
    path = write_random(tmp_path / "a", pa.record_batch({"number": column}))
    with pytest.raises(MessageTooLarge) as caught:
        values_of(path)
    assert str(path) in caught.value.what
    assert "column 'number': one row unpacks to 160001" in caught.value.what


@pytest.mark.parametrize("write", [write_stream, write_random])
def test_schemas_that_streams_do_not_carry_are_reported(
    write: Any, tmp_path: Path, values_of: Callable[..., Any]
) -> None:
    column = pa.nulls(1, pa.decimal128(20, 1000))
    path = write(tmp_path / "a", pa.record_batch({"number": column}))
    with pytest.raises(SchemaMismatch) as caught:
        values_of(path)
    assert f"{str(path)!r} cannot be read: column 'number': dec" in caught.value.what


def test_a_null_type_that_is_not_nullable_is_reported(
    tmp_path: Path, values_of: Callable[..., Any]
) -> None:
    path = write_stream(tmp_path / "a", pa.record_batch({"number": pa.nulls(1)}))
    data = path.read_bytes()
    column = table(data, target(data, 8), 2)
    begin, _ = vector(data, field(data, column, 1))
    nullable = field(data, target(data, begin), 1)
    assert data[nullable] == 1
    patched(path, nullable, "B", 0)
    with pytest.raises(SchemaMismatch) as caught:
        values_of(path)
    assert "column 'number': null is declared not nullable" in caught.value.what


def test_checks_of_values_can_be_left_out(
    tmp_path: Path, consumer_factory: Callable[..., Any]
) -> None:
    path = write_lying(tmp_path / "a", TEXT, 2, b"\xff\xfethreeeleven")
    rows = consumer_factory(path, check__values="false").fetch_messages(0, None, NOW)
    assert rows.rows.num_rows == 3


@pytest.mark.parametrize(
    "data", [b"PAR1" * 10, b"FEA1" * 10, b"\x1f\x8b\x08" * 10, b"a,b,c\n1,2,3\n"]
)
def test_files_of_other_kinds_are_reported(
    data: bytes, tmp_path: Path, values_of: Callable[..., Any]
) -> None:
    (tmp_path / "a").write_bytes(data)
    what = refused(values_of, tmp_path / "a")
    assert what.endswith(f"is not an Arrow stream: it begins with {data[:8]!r}")


def test_schema_that_shares_its_parts_is_read_in_no_time(
    tmp_path: Path, values_of: Callable[..., Any]
) -> None:
    """Each level twice the one below, which stands there once: 2 to the 60th."""
    deep: Any = pa.int64()
    for _ in range(40):
        deep = pa.struct([("a", deep), ("b", pa.int8())])
    path = tmp_path / "a"
    data = bytearray(pa.schema({"x": deep}).serialize().to_pybytes())
    column = table(data, target(data, 8), 2)
    column_at, _ = vector(data, field(data, column, 1))
    place = target(data, column_at)
    for _ in range(40):
        begin, count = vector(data, field(data, place, 5))
        assert count == 2
        place = target(data, begin)
        struct.pack_into("<I", data, begin + 4, place - (begin + 4))
    path.write_bytes(data)
    refused(values_of, path)


def test_cut_file_does_not_end_the_process_where_it_is_not_mapped(
    tmp_path: Path, consumer_factory: Callable[..., Any]
) -> None:
    path = write_random(tmp_path / "a", numbers(*range(100_000)))
    consumer = consumer_factory(path, memory__map="false")
    rows = consumer.fetch_messages(0, None, NOW).rows
    os.truncate(path, 0)
    assert rows[0].to_pylist() == list(range(100_000))
