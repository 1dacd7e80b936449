"""Segments that another program wrote into the folder, or damaged."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from streamfactory.arrowlog import Epoch
from streamfactory.arrowlog.disk import DiskLog, DiskLogStore
from streamfactory.spi import CorruptData, SchemaMismatch, Summary, Verification
from streamfactory.spi.soundness import UNPACKED_BYTES

if TYPE_CHECKING:
    from pathlib import Path

MOST = 1 << 40
Stores = Callable[..., DiskLogStore]


def written(store: DiskLogStore, *columns: pa.Array) -> DiskLog:
    """A topic with a segment for each column."""
    log = store.create("t", pa.schema({"c": columns[0].type}))
    for column in columns:
        put(log, column)
    return log


def put(log: DiskLog, column: pa.Array) -> None:
    """Commit one epoch, in a segment of its own."""
    stage = log.stage("attempt")
    stage.append(0, pa.RecordBatch.from_arrays([column], schema=log.schema))
    log.commit(Epoch(None, 0, [stage.seal()], Summary()))


def damage(root: Path, before: bytes, after: bytes) -> Path:
    """Replace bytes in the one segment that has them."""
    found = [path for path in root.glob("*/*/data/*") if before in path.read_bytes()]
    assert len(found) == 1
    assert found[0].read_bytes().count(before) == 1
    found[0].write_bytes(found[0].read_bytes().replace(before, after))
    return found[0]


def read(log: DiskLog, start: int = 0) -> pa.RecordBatch:
    return log.read(0, start, max_rows=MOST, max_bytes=MOST).rows


TEXT = pa.array(["aaaa", "bbbb", "cccc"])
OFFSETS = struct.pack("<4i", 0, 4, 8, 12)


@pytest.mark.parametrize(
    ("column", "before", "after"),
    [
        (TEXT, OFFSETS, struct.pack("<4i", 0, -2_000_000_000, 8, 12)),
        (TEXT.cast(pa.binary()), OFFSETS, struct.pack("<4i", 0, 300, 8, 12)),
        (TEXT, b"aaaabbbb", b"aaa\xffbbbb"),
        (
            TEXT.dictionary_encode(),
            struct.pack("<3i", 0, 1, 2),
            struct.pack("<3i", 2_000_000_000, 1, 2),
        ),
        (
            pa.array([77777], pa.time32("s")),
            struct.pack("<i", 77777),
            struct.pack("<i", 86400),
        ),
        (
            pa.array([1, None, None, 4]),
            struct.pack("<qq", 4, 2),
            struct.pack("<qq", 4, 1),
        ),
    ],
)
def test_segments_with_values_out_of_place_are_reported_by_name(
    column: pa.Array,
    before: bytes,
    after: bytes,
    store: DiskLogStore,
    root: Path,
    store_factory: Stores,
) -> None:
    written(store, column)
    segment = damage(root, before, after)
    log = store_factory().open("t")
    with pytest.raises(CorruptData) as caught:
        read(log)
    assert segment.name in caught.value.what
    assert ": column 'c': " in caught.value.what
    [problem] = log.verify().problems
    assert segment.name in problem


def test_damaged_rows_are_reported_before_they_are_merged(
    store: DiskLogStore, root: Path, store_factory: Stores
) -> None:
    written(store, TEXT, pa.array(["d"]))
    segment = damage(root, OFFSETS, struct.pack("<4i", 0, 2**30, 8, 12))
    log = store_factory().open("t")
    with pytest.raises(CorruptData, match=segment.name):
        log.compact()
    assert read(log, 3).num_rows == 1


def test_checks_can_be_left_out_and_verification_checks_all_the_same(
    store: DiskLogStore, root: Path, store_factory: Stores
) -> None:
    written(store, TEXT)
    damage(root, b"aaaabbbb", b"aaa\xffbbbb")
    log = store_factory(check_values=False).open("t")
    assert read(log).num_rows == 3
    [problem] = log.verify().problems
    assert "UTF8" in problem


def test_a_segment_of_another_schema_is_reported(
    store: DiskLogStore, root: Path, store_factory: Stores
) -> None:
    written(store, TEXT)
    [segment] = root.glob("*/*/data/*")
    other = pa.record_batch({"c": pa.array([1, 2, 3])})
    with pa.ipc.new_file(segment, other.schema) as writer:
        writer.write_batch(other)
    with pytest.raises(CorruptData, match="another schema"):
        read(store_factory().open("t"))


@pytest.mark.parametrize("text", ["5", "null", "[[1]]", '[["a", 1]]', "[[0, 1e400]]"])
def test_times_of_a_merge_that_are_none_are_reported(
    text: str, store: DiskLogStore, root: Path, store_factory: Stores, clock: Any
) -> None:
    log = store.create("t", pa.schema({"c": pa.string()}))
    for _ in range(2):
        clock.ms += 1000
        put(log, TEXT)
    log.compact()
    found = [p for p in root.glob("*/*/data/*") if b"appended" in p.read_bytes()]
    data = found[0].read_bytes()
    at = data.index(b"[[0,")
    end = data.index(b"]]", at) + 2
    damaged = text.encode().ljust(end - at)
    found[0].write_bytes(data[:at] + damaged + data[end:])
    with pytest.raises(CorruptData, match="times of its rows"):
        store_factory().open("t").offsets_at(int(clock.ms), [0])


@pytest.mark.parametrize("rows", [3, 5000])
def test_what_readers_refuse_is_not_staged(rows: int, store: DiskLogStore) -> None:
    log = store.create("t", pa.schema({"c": pa.string()}))
    text = pa.array([b"\xff" * 4] * rows)
    bad = pa.Array.from_buffers(pa.string(), rows, text.buffers())
    with pytest.raises(SchemaMismatch, match=r"cannot be written: column 'c'.*UTF8"):
        put(log, bad)
    put(log, TEXT)
    assert read(log).column("c") == TEXT


def test_words_that_stand_for_gigabytes_are_read_in_pieces(store: DiskLogStore) -> None:
    words = pa.DictionaryArray.from_arrays(
        pa.array([0] * 50_000, pa.int32()), ["x" * 20_000]
    )
    log = written(store, words)
    at = 0
    while at < 50_000:
        rows = read(log, at)
        assert 0 < rows.num_rows * 20_000 <= UNPACKED_BYTES
        at += rows.num_rows
    assert at == 50_000
    assert log.verify() == Verification(50_000, ())


def test_what_readers_refuse_is_not_created(store: DiskLogStore) -> None:
    with pytest.raises(SchemaMismatch, match="column 'd': decimal128"):
        store.create("t", pa.schema({"d": pa.decimal128(20, 1000)}))
    assert store.names() == []


def plain(text: bytes) -> pa.Array:
    return pa.array([text, b""])


def dictionary(text: bytes) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array([0, 0], pa.int8()), pa.array([text]))


@pytest.mark.parametrize("column_of", [plain, dictionary])
@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_a_compressed_segment_unpacks_to_no_more_than_was_committed(
    store_factory: Stores,
    root: Path,
    codec: str,
    column_of: Callable[[bytes], pa.Array],
) -> None:
    column = column_of(b"\0" * (80 << 20))
    log = written(store_factory(compression=codec), column)
    store = store_factory(compression=codec)
    assert store.open("t").verify() == Verification(2, ())
    before = set(root.rglob("data/*.arrow"))
    put(log, pa.array([b"", b""]).cast(column.type))
    bomb = max(before, key=lambda path: path.stat().st_size)
    [target] = set(root.rglob("data/*.arrow")) - before
    target.write_bytes(bomb.read_bytes())
    allocated = pa.total_allocated_bytes()
    with pytest.raises(CorruptData, match="bytes are announced"):
        read(store.open("t"), 2)
    assert pa.total_allocated_bytes() - allocated < 1 << 20
