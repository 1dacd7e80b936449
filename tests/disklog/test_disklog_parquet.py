"""Topics whose segments are Parquet files: the same log, and hostile files."""

from __future__ import annotations

import gc
import json
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.disklog.hostile import change, inner, record, snapshots, unsealed, use
from tests.fuzz.columns import columns
from tests.proving.numbers import SCHEMA, append, everything, numbers_of

from streamfactory.arrowlog import Epoch, Retention
from streamfactory.arrowlog.disk.leaves import leaves_of, values_of
from streamfactory.arrowlog.disk.pages import Chunk, read_pages
from streamfactory.arrowlog.disk.sealed import decode_sealed
from streamfactory.arrowlog.disk.thrift import INT32, NotParquet, read_struct
from streamfactory.spi import (
    CorruptData,
    FormatRefused,
    MessageTooLarge,
    MisuseError,
    SchemaMismatch,
    Summary,
    Unsupported,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tests.proving.numbers import HandClock

    from streamfactory.arrowlog.disk import DiskLog, DiskLogStore

    Stores = Callable[..., DiskLogStore]

MOST = 1 << 40
ROWS = 8
REFUSED = {
    "date64",
    "decimal256",
    "dense_union",
    "empty_binary",
    "empty_list",
    "interval",
    "sparse_union",
    "struct_of_nothing",
    "time_s",
    "timestamp_s",
}
"""Besides dictionaries and runs, which Parquet has as encodings of its own."""
OLD = int(pa.__version__.partition(".")[0]) < 26
if OLD:
    # It neither writes nor reads them, or nulls of them.
    REFUSED |= {"fixed_list", "fixed_list_of_text", "tensor"}
    REFUSED |= {"large_list_view", "list_view", "list_view_of_text"}
stores_fixed_lists = pytest.mark.skipif(
    OLD, reason="pyarrow before 26 does not write nulls of lists of fixed size"
)


@pytest.fixture
def store(store_factory: Stores) -> DiskLogStore:
    return store_factory(segment_format="parquet", merge_files=3)


@pytest.fixture
def log(store: DiskLogStore) -> DiskLog:
    return store.create("t", SCHEMA, 2)


def segments(root: Path, log: DiskLog) -> list[Path]:
    return sorted(inner(root, log).glob("data/*"))


def put(log: DiskLog, column: pa.Array) -> None:
    stage = log.stage("attempt")
    stage.append(0, pa.RecordBatch.from_arrays([column], schema=log.schema))
    log.commit(Epoch(None, 0, [stage.seal()], Summary()))


def read(log: DiskLog, start: int = 0) -> pa.RecordBatch:
    return log.read(0, start, max_rows=MOST, max_bytes=MOST).rows


def kinds() -> Mapping[str, pa.Array]:
    found = columns()
    encoded = ("dictionary", "dictionaries", "runs")
    return {k: v for k, v in found.items() if not any(word in k for word in encoded)}


# --- the same log -------------------------------------------------------------------


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_rows_of_every_type_are_read_as_they_were_written(
    store_factory: Stores, compression: str | None
) -> None:
    stored = {name: c for name, c in kinds().items() if name not in REFUSED}
    rows = pa.record_batch(stored)
    store = store_factory(segment_format="parquet", compression=compression)
    log = store.create("t", rows.schema)
    stage = log.stage("attempt")
    stage.append(0, rows)
    log.commit(Epoch(None, 0, [stage.seal()], Summary()))
    found = read(store_factory().open("t"))
    assert found.schema.equals(rows.schema)
    assert found.equals(rows)


@pytest.mark.parametrize("name", sorted(columns()))
def test_types_that_would_change_are_refused_when_the_topic_is_created(
    store_factory: Stores, name: str
) -> None:
    column = columns()[name]
    schema = pa.schema({"c": column.type})
    store = store_factory(segment_format="parquet")
    if name in REFUSED or name not in kinds():
        with pytest.raises(SchemaMismatch, match="'c' has the type") as caught:
            store.create("t", schema)
        assert "segment.format=arrow" in str(caught.value.remedy)
        return
    log = store.create("t", schema)
    put(log, column)
    assert read(log).column(0).equals(column)


@stores_fixed_lists
def test_required_lists_of_fixed_size_are_refused_below_what_may_be_null(
    store_factory: Stores,
) -> None:
    # pyarrow 26 writes them, and does not read them.
    inner = pa.struct([pa.field("x", pa.list_(pa.int8(), 2), nullable=False)])
    store = store_factory(segment_format="parquet")
    store.create("t", pa.schema([pa.field("c", inner, nullable=False)]))
    for number, kind in enumerate([inner, pa.list_(inner), pa.struct([("s", inner)])]):
        with pytest.raises(SchemaMismatch, match="'c' has the type"):
            store.create(f"t{number}", pa.schema({"c": kind}))


def test_rows_that_pyarrow_does_not_write_are_refused_with_the_remedy(
    store_factory: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As of a topic that a newer pyarrow created.
    def refuse(*_: object, **__: object) -> None:
        msg = "Lists with non-zero length null components are not supported"
        raise pa.ArrowNotImplementedError(msg)

    store = store_factory(segment_format="parquet")
    log = store.create("t", pa.schema({"c": pa.int8()}))
    monkeypatch.setattr(pq.ParquetWriter, "write_batch", refuse)
    with pytest.raises(SchemaMismatch, match="Lists with non-zero length") as caught:
        put(log, pa.array([1], pa.int8()))
    assert "segment.format=arrow" in str(caught.value.remedy)


def test_more_partitions_than_small_segments_are_counted_for_are_refused(
    store: DiskLogStore, store_factory: Stores
) -> None:
    for act in (
        lambda: store.create("t", SCHEMA, 1001),
        lambda: store.create("u", SCHEMA, 1000).grow(1001),
    ):
        with pytest.raises(MisuseError, match="1000 partitions") as caught:
            act()
        assert "segment.format=arrow" in str(caught.value.remedy)
    assert len(store_factory().create("v", SCHEMA, 1001).bounds()) == 1001


def test_an_abandoned_segment_is_not_written_to_later(
    log: DiskLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", errors.append)
    stage = log.stage("attempt")
    stage.append(0, pa.record_batch([np.arange(65536)], schema=SCHEMA))
    stage.discard()
    del stage
    gc.collect()
    assert errors == []


def test_a_topic_without_columns_is_refused(store: DiskLogStore) -> None:
    with pytest.raises(SchemaMismatch, match="at least one column"):
        store.create("t", pa.schema([]))


def test_each_partition_has_files_of_its_own_that_parquet_programs_read(
    log: DiskLog, root: Path
) -> None:
    append(log, {0: [1, 2, 3], 1: [4, 5]})
    found = {tuple(pq.read_table(p)["number"].to_pylist()) for p in segments(root, log)}
    assert found == {(1, 2, 3), (4, 5)}
    assert {path.suffix for path in segments(root, log)} == {".parquet"}


def test_merges_keep_offsets_and_times_and_each_partition_apart(
    log: DiskLog, clock: HandClock, root: Path, store_factory: Stores
) -> None:
    for n in range(20):
        clock.ms = float(n)
        append(log, {0: [n, 100 + n], 1: [n]}, "w", n)
    log.compact()
    assert len(segments(root, log)) == 2
    found = store_factory().open("t")
    assert everything(found) == everything(log)
    assert numbers_of(found, 0, 31) == [
        115,
        *(x for n in range(16, 20) for x in (n, 100 + n)),
    ]
    assert found.offsets_at(7, [0, 1]) == {0: 14, 1: 7}
    assert found.verify().problems == ()
    assert snapshots(root, log)


def test_small_segments_of_many_partitions_end_in_few_files(
    store: DiskLogStore, root: Path
) -> None:
    log = store.create("many", SCHEMA, 5)
    for n in range(30):
        append(log, {partition: [n] for partition in range(5)}, "w", n)
    # With merge_files=3 each partition has at most two files of each level.
    assert int(log.facts()["segments"]) <= 5 * 2 * 4
    log.compact()
    assert len(segments(root, log)) == 5
    assert everything(log) == {partition: list(range(30)) for partition in range(5)}


def test_a_gap_behind_a_full_segment_begins_another_file(
    store_factory: Stores, root: Path
) -> None:
    store = store_factory(segment_format="parquet", segment_size=8000)
    log = store.create("t", SCHEMA)
    for part in (range(10), range(10, 1100), range(1100, 1110)):
        append(log, {0: list(part)})
    log.compact()
    assert everything(log) == {0: list(range(1110))}
    assert len(segments(root, log)) == 3


def test_retention_removes_files_and_keeps_the_rest(log: DiskLog, root: Path) -> None:
    for n in range(2):
        append(log, {0: [n] * 10}, "w", n)
    log.retain(Retention(rows=5), {})
    log.compact()
    assert len(segments(root, log)) == 1
    assert log.bounds()[0].earliest == 15
    assert numbers_of(log, 0, 15) == [1] * 5


def test_a_topic_keeps_its_format_whatever_a_later_program_sets(
    log: DiskLog, root: Path, store_factory: Stores
) -> None:
    append(log, {0: [1]})
    append(store_factory(segment_format="arrow").open("t"), {0: [2]})
    assert everything(log)[0] == [1, 2]
    assert {path.suffix for path in segments(root, log)} == {".parquet"}
    arrow = store_factory().create("a", SCHEMA)
    append(store_factory(segment_format="parquet").open("a"), {0: [1]})
    assert {path.suffix for path in segments(root, arrow)} == {".arrow"}


def test_only_topics_of_parquet_have_the_new_format_number(
    log: DiskLog, root: Path, store_factory: Stores
) -> None:
    arrow = store_factory().create("a", SCHEMA)
    for topic, number in ((log, 2), (arrow, 1)):
        append(topic, {0: [1]})
        topic.compact()
        files = [record(root, topic, 1), *snapshots(root, topic)]
        assert [unsealed(path)["format"] for path in files] == [number, number]
    path = record(root, log, 0)
    with pytest.raises(FormatRefused) as caught:
        decode_sealed(path.read_bytes(), str(path), {1: dict})
    assert caught.value.what.endswith("format 2, but this version supports 1")
    assert "later version" in str(caught.value.remedy)


def test_more_partitions_than_a_stage_keeps_open_are_written(
    store: DiskLogStore,
) -> None:
    log = store.create("wide", SCHEMA, 150)
    append(log, {partition: [partition] for partition in range(150)})
    assert everything(log) == {partition: [partition] for partition in range(150)}


def test_files_of_a_range_are_those_that_have_its_rows(
    log: DiskLog, root: Path
) -> None:
    append(log, {0: [1, 2, 3]})
    append(log, {0: [4, 5]})
    first, second = log.files(0, 2, 4)
    assert (first.base, first.start, first.end, first.rows) == (0, 2, 3, 3)
    assert (second.base, second.start, second.end, second.rows) == (3, 3, 4, 2)
    assert pq.read_table(second.path)["number"].to_pylist() == [4, 5]
    assert log.files(0, 2, 2) == []
    log.compact()
    assert [file.rows for file in log.files(0, 0, 5)] == [5]


@pytest.mark.parametrize("closed", [True, False])
def test_files_of_a_range_are_found_after_another_process_has_merged_them(
    log: DiskLog, store_factory: Stores, *, closed: bool
) -> None:
    for n in range(2):
        append(log, {0: [n]})
    reader = store_factory().open("t")
    assert numbers_of(reader, 0, 1) == [1]  # it knows where the offset was
    assert [file.base for file in reader.files(0, 1, 2)] == [1]
    if closed:
        reader.segments.close()
    store_factory(segment_format="parquet", merge_files=2).open("t").compact()
    [file] = reader.files(0, 1, 2)
    assert (file.base, file.start, file.end) == (0, 1, 2)
    assert pq.read_table(file.path)["number"].to_pylist() == [0, 1]


def test_segments_of_arrow_have_no_files_for_others(store_factory: Stores) -> None:
    log = store_factory().create("t", SCHEMA)
    append(log, {0: [1]})
    with pytest.raises(Unsupported, match="segments of the format arrow") as caught:
        log.files(0, 0, 1)
    assert "segment.format=parquet" in str(caught.value.remedy)


def test_text_is_read_where_a_dictionary_was_given_up_within_a_row_group(
    store: DiskLogStore, root: Path
) -> None:
    # Each is more than half of what a stage combines, and written as it is.
    few = pa.array(["a", "b"] * 20_000)
    many = pa.array([f"a text that is different: {n}" for n in range(60_000)])
    log = store.create("t", pa.schema({"c": pa.string()}))
    stage = log.stage("attempt")
    for column in (few, many):
        stage.append(0, pa.record_batch([column], schema=log.schema))
    log.commit(Epoch(None, 0, [stage.seal()], Summary()))
    [path] = segments(root, log)
    last = pq.read_metadata(path).row_group(1).column(0)
    assert {"PLAIN", "RLE_DICTIONARY"} <= set(last.encodings)
    wanted = [*few.to_pylist(), *many.to_pylist()]
    found: list[pa.Array] = []
    while sum(map(len, found)) < len(wanted):
        found.append(read(log, sum(map(len, found))).column(0))
    assert pa.chunked_array(found).to_pylist() == wanted


# --- what is committed can be read --------------------------------------------------


def one_text_of_many_views(text: str, rows: int) -> pa.Array:
    _, views, *data = pa.array([text], pa.string_view()).buffers()
    many = pa.py_buffer(views.to_pybytes()[:16] * rows)
    return pa.Array.from_buffers(pa.string_view(), rows, [None, many, *data])


WIDE = pa.struct([(f"f{i}", pa.int64()) for i in range(200)])


@pytest.mark.parametrize(
    "made",
    [
        lambda: pa.nulls(60_000, pa.list_(WIDE)),
        lambda: pa.array([[]] * 60_000, pa.list_(pa.binary(6144))),
        lambda: pa.array([[]] * 60_000, pa.map_(pa.string(), WIDE)),
        pytest.param(
            lambda: pa.nulls(60_000, pa.list_(pa.list_(pa.binary(600), 9))),
            marks=stores_fixed_lists,
        ),
        lambda: one_text_of_many_views("x" * 2000, 60_000),
    ],
    ids=["structs", "fixed", "maps", "fixed lists", "views"],
)
def test_rows_that_expand_in_parquet_are_committed_so_that_they_are_read(
    store: DiskLogStore, made: Callable[[], pa.Array]
) -> None:
    column = made()
    log = store.create("t", pa.schema({"c": column.type}))
    put(log, column)
    log.compact()
    at = 0
    while at < len(column):
        found = read(log, at).column(0)
        assert found.equals(column.slice(at, len(found)))
        at += len(found)


def test_a_row_that_no_reader_would_accept_is_refused_when_it_is_written(
    store: DiskLogStore,
) -> None:
    log = store.create("t", pa.schema({"c": pa.list_(pa.list_(pa.binary(6144)))}))
    stage = log.stage("attempt")
    stage.append(
        0,
        pa.record_batch(
            [pa.array([[None] * 60_000], log.schema[0].type)], schema=log.schema
        ),
    )
    with pytest.raises(MessageTooLarge, match="null or empty") as caught:
        stage.seal()
    assert "segment.format=arrow" in str(caught.value.remedy)


@stores_fixed_lists
def test_long_fixed_lists_within_lists_are_refused_when_the_topic_is_created(
    store: DiskLogStore,
) -> None:
    store.create("short", pa.schema({"c": pa.list_(pa.list_(pa.float32(), 16))}))
    with pytest.raises(SchemaMismatch, match="'c' has the type"):
        store.create("t", pa.schema({"c": pa.list_(pa.list_(pa.float32(), 17))}))


@pytest.mark.parametrize("name", sorted({*kinds()} - REFUSED))
def test_writers_count_the_values_that_the_footer_has(name: str) -> None:
    # Arrow cannot write a slice of views within a struct.
    for first in (0,) if name == "struct_of_views" else (0, 1):
        column = kinds()[name].slice(first)
        sink = pa.BufferOutputStream()
        rows = pa.record_batch({"c": column})
        pq.write_table(pa.Table.from_batches([rows]), sink)
        group = pq.read_metadata(pa.BufferReader(sink.getvalue())).row_group(0)
        footer = [group.column(i).num_values for i in range(group.num_columns)]
        assert [values for values, _ in values_of(column)] == footer
        assert len(leaves_of(rows.schema)) == len(footer)


# --- records ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "edit",
    [
        lambda plain: plain["segments"][0].update(runs=[]),
        lambda plain: plain["segments"][0].update(runs=[[0, 0, 1, [1], 8, 0, 0]]),
        lambda plain: plain["segments"][0].update(name="data/" + "a" * 32 + ".arrow"),
        lambda plain: plain["segments"][0]["runs"].append([1, 0, 1, [1], 8, 0, 0]),
        lambda plain: plain.update(format=1),
    ],
)
def test_records_that_are_not_of_the_format_are_refused(
    log: DiskLog, root: Path, store_factory: Stores, edit: Any
) -> None:
    append(log, {0: [1]})
    change(record(root, log, 1), edit)
    with pytest.raises(CorruptData) as caught:
        store_factory().open("t")
    assert f"{1:020d}.json" in caught.value.what


def test_a_record_of_the_format_of_parquet_is_refused_in_a_topic_of_arrow(
    store_factory: Stores, root: Path
) -> None:
    log = store_factory().create("t", SCHEMA)
    append(log, {0: [1]})
    change(record(root, log, 1), lambda plain: plain.update(format=2, segments=[]))
    with pytest.raises(CorruptData, match="another format than the topic"):
        store_factory().open("t")


def test_staged_files_of_another_format_are_not_committed(
    log: DiskLog, store_factory: Stores
) -> None:
    arrow = store_factory().create("a", SCHEMA)
    stage = arrow.stage("attempt")
    stage.append(0, pa.record_batch([pa.array([1])], schema=SCHEMA))
    with pytest.raises(MisuseError):
        log.commit(Epoch(None, 0, [stage.seal()], Summary()))
    assert log.bounds()[0].latest == 0


# --- hostile files ------------------------------------------------------------------


def replaced(
    store: DiskLogStore, root: Path, kind: pa.DataType, column: pa.Array, **options: Any
) -> DiskLog:
    """A topic of one small row whose segment is replaced by one of other rows."""
    log = store.create("t", pa.schema({"c": kind}))
    put(log, pa.array([None], kind))
    [path] = segments(root, log)
    pq.write_table(pa.table({"c": column}), path, row_group_size=MOST, **options)
    return log


def repeated(text: str, rows: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), [text])


@pytest.mark.parametrize(
    ("kind", "column", "options", "words"),
    [
        (
            pa.string(),
            lambda: repeated("x" * 100_000, 10_000),
            {"store_schema": False},
            "its text expand to 1000000000 bytes",
        ),
        (
            pa.string(),
            lambda: pa.array(["x" * 1000] * 10_000),
            {"use_dictionary": False, "column_encoding": "DELTA_BYTE_ARRAY"},
            "encoding 7",
        ),
        (
            pa.list_(pa.int64()),
            lambda: pa.array([[None] * 9_000_000], pa.list_(pa.int64())),
            {"use_dictionary": False},
            "rows expand to more than",
        ),
        (
            pa.list_(pa.string()),
            lambda: pa.ListArray.from_arrays(
                [0, 10_000], repeated("x" * 100_000, 10_000)
            ),
            {"store_schema": False},
            "has a dictionary",
        ),
        (
            pa.int64(),
            lambda: pa.array(np.zeros(9_000_000, np.int64)),
            {"compression": "zstd"},
            "rows expand to more than",
        ),
    ],
    ids=["dictionary", "prefixes", "levels", "nested dictionary", "numbers"],
)
def test_a_small_file_of_many_bytes_is_refused_before_they_are_allocated(
    store: DiskLogStore,
    root: Path,
    kind: pa.DataType,
    column: Callable[[], pa.Array],
    options: Any,
    words: str,
) -> None:
    log = replaced(store, root, kind, column(), **options)
    [path] = segments(root, log)
    assert path.stat().st_size < 1_000_000
    usual, counting = (
        pa.default_memory_pool(),
        pa.proxy_memory_pool(pa.default_memory_pool()),
    )
    pa.set_memory_pool(counting)
    try:
        with pytest.raises(CorruptData) as caught:
            read(log)
    finally:
        pa.set_memory_pool(usual)
    assert str(path) in caught.value.what
    assert words in caught.value.what
    assert counting.max_memory() < 16_000_000


@stores_fixed_lists
def test_nulls_that_stand_for_long_fixed_lists_are_refused(
    store: DiskLogStore, root: Path
) -> None:
    kind = pa.list_(pa.float32(), 1536)
    sink = pa.BufferOutputStream()
    pq.write_table(pa.schema({"c": kind}).empty_table(), sink)
    plain = pq.read_metadata(pa.BufferReader(sink.getvalue())).metadata
    log = store.create("t", pa.schema({"c": kind}))
    put(log, pa.array([None], kind))
    [path] = segments(root, log)
    rows = pa.table({"c": pa.nulls(200_000, pa.list_(pa.float32()))})
    with pq.ParquetWriter(path, rows.schema, store_schema=False) as writer:
        writer.write_table(rows, row_group_size=MOST)
        writer.add_key_value_metadata({b"ARROW:schema": plain[b"ARROW:schema"]})
    with pytest.raises(CorruptData, match="rows expand to more than"):
        read(log)


def test_dictionaries_of_several_columns_are_counted_together(
    store: DiskLogStore, root: Path
) -> None:
    names = ["a", "b", "c", "d"]
    log = store.create("t", pa.schema(dict.fromkeys(names, pa.string())))
    stage = log.stage("attempt")
    stage.append(0, pa.record_batch([pa.nulls(1, pa.string())] * 4, schema=log.schema))
    log.commit(Epoch(None, 0, [stage.seal()], Summary()))
    [path] = segments(root, log)
    rows = pa.table(dict.fromkeys(names, repeated("x" * 100_000, 640)))
    pq.write_table(rows, path, store_schema=False)
    with pytest.raises(CorruptData, match="its text expand to 256000000 bytes"):
        read(log)


def test_a_large_row_group_is_read_where_so_much_was_committed(
    store: DiskLogStore,
) -> None:
    column = pa.array([["x" * 1000] * 70_000])  # one row cannot be cut
    log = store.create("t", pa.schema({"c": column.type}))
    put(log, column)
    name = "/".join(log.files(0, 0, 1)[0].path.split("/")[-2:])
    assert log.segments.batch(name, 0, 1).column(0).equals(column)


@pytest.mark.parametrize(
    "table",
    [
        pa.table({"number": pa.array([1, 2], pa.int64())}),
        pa.table({"number": pa.array([1], pa.int32())}),
        pa.table({"other": pa.array([1], pa.int64())}),
        pa.table({"number": [1], "more": [1]}),
    ],
    ids=["rows", "type", "name", "column"],
)
def test_another_table_in_the_place_of_a_segment_is_refused(
    log: DiskLog, root: Path, table: pa.Table
) -> None:
    append(log, {0: [1]})
    [path] = segments(root, log)
    pq.write_table(table, path)
    with pytest.raises(CorruptData) as caught:
        read(log)
    assert str(path) in caught.value.what
    with pytest.raises(CorruptData):
        log.files(0, 0, 1)
    assert log.verify().problems


@pytest.mark.parametrize("cut", [0, 7, 20, -1, -9])
def test_a_truncated_segment_is_refused(log: DiskLog, root: Path, cut: int) -> None:
    append(log, {0: [1]})
    [path] = segments(root, log)
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(CorruptData, match="data/"):
        read(log)


def test_a_changed_byte_of_a_page_is_noticed(log: DiskLog, root: Path) -> None:
    append(log, {0: [7_777_777_777]})
    [path] = segments(root, log)
    column = pq.read_metadata(path).row_group(0).column(0)
    last = column.data_page_offset + column.total_compressed_size - 1
    data = path.read_bytes()
    path.write_bytes(data[:last] + bytes([data[last] ^ 1]) + data[last + 1 :])
    with pytest.raises(CorruptData, match="checksum"):
        read(log)


@pytest.mark.parametrize("encoded", [True, False])
def test_values_are_validated(
    store: DiskLogStore, root: Path, *, encoded: bool
) -> None:
    wrong = pa.array([b"caf\xc3"]).view(pa.string())
    options = {"use_dictionary": encoded, "write_statistics": False}
    log = replaced(store, root, pa.string(), wrong, **options)
    with pytest.raises(CorruptData, match=r"UTF-?8"):
        read(log)


@pytest.mark.parametrize(
    "times", [b"", b"x", b"{}", b"[[]]", b"[[[0,-1]]]", b"[[[1,5]]]", b"[" * 100_000]
)
def test_wrong_append_times_of_a_segment_are_refused(
    log: DiskLog, clock: HandClock, root: Path, store_factory: Stores, times: bytes
) -> None:
    for n in range(3):
        clock.ms = float(n)
        append(log, {0: [n]}, "w", n)
    log.compact()
    [path] = segments(root, log)
    rows = pq.read_table(path).replace_schema_metadata(None)
    with pq.ParquetWriter(path, rows.schema) as writer:
        writer.write_table(rows)
        writer.add_key_value_metadata({b"appended": times})
    found = store_factory().open("t")
    with pytest.raises(CorruptData, match="times of its rows"):
        found.offsets_at(1, [0])


def test_everything_done_with_a_damaged_topic_ends_in_typed_errors(
    log: DiskLog, root: Path, store_factory: Stores
) -> None:
    append(log, {0: [1], 1: [2]}, "w", 0)
    for path in segments(root, log):
        path.write_bytes(b"PAR1" + b"\xff" * 100 + b"PAR1")
    errors = use(store_factory(segment_format="parquet"))
    assert {type(error) for error in errors} == {CorruptData}


# --- page headers -------------------------------------------------------------------


def varint(value: int) -> bytes:
    found = b""
    while value > 127:
        found += bytes([value & 127 | 128])
        value >>= 7
    return found + bytes([value])


def number(value: int) -> bytes:
    return varint((value << 1) ^ (value >> 63))


def page(
    rows: int = 3,
    expanded: int = 10,
    stored: int = 10,
    kind: int = 0,
    encoding: int = 0,
) -> bytes:
    """The header and the bytes of a data page, in Thrift's compact protocol."""
    inner = b"\x15" + number(rows) + b"\x15" + number(encoding) + b"\0"
    head = b"".join(b"\x15" + number(n) for n in (kind, expanded, stored))
    return head + b"\x2c" + inner + b"\0" + b"v" * min(stored, 10)


def pages(data: bytes, values: int = 3, limit: int = 100) -> Any:
    return read_pages(
        lambda at, n: data[at : at + n], Chunk(0, len(data), values), limit
    )


def test_page_headers_are_read() -> None:
    assert pages(page() + page(4), 7) == (7, 20, 0, frozenset({0}), 0)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x15",
        page()[:8],
        page(expanded=101),
        page(expanded=2**31 - 1),
        page(expanded=-1),
        page(stored=11)[:-1],
        page(stored=2**40),
        page(rows=2),
        page(rows=4),
        page(rows=-1),
        page(kind=1),
        page(kind=3),
        page(encoding=7),
        b"\x15" + b"\x80" * 20,
        b"\x1c" * 50,
        b"\x19\x15\x00\x00",
        b"\x18" + varint(2**60) + b"\0",
        b"\0",
        page()[:6] + b"\x2c" + b"\x15\x06\x15\x0e\x06\x04\x00" + page()[11:],
        page()[:6] + b"\x2c" + b"\x15\x06\x15\x0e\x05\x04\x00" + page()[11:],
        page()[:6] + b"\x2c" + b"\x16\x06\x15\x00" + page()[11:],
    ],
    ids=lambda data: data[:12].hex(),
)
def test_wrong_page_headers_are_refused(data: bytes) -> None:
    with pytest.raises(NotParquet):
        pages(data)


def varied(*fields: bytes) -> bytes:
    return b"".join(fields) + b"\0"


@pytest.mark.parametrize(
    "unknown",
    [
        b"\x1b\x02\x88\x02ab\x01c\x00\x00",  # a map of texts, of two entries
        b"\x1b\x00",  # an empty map
        b"\x1d" + bytes(16),  # a uuid
        b"\x1c" * 30 + b"\0" * 30,  # structs within structs
        b"\x19\x2c\0\0",  # a list of two structs
        b"\x1a\x25\x02\x04",  # a set of numbers
        b"\x17" + bytes(8),  # a double
        b"\x11",  # true
    ],
    ids=lambda data: data[:8].hex(),
)
def test_fields_of_later_versions_are_passed_over(unknown: bytes) -> None:
    # Field 30, and then a known field, which Thrift allows to come in any order.
    known = b"\x15\x0e"  # field 1: 7
    moved = bytes([unknown[0] & 15]) + varint(60) + unknown[1:]
    for text in (varied(known, moved), varied(moved, b"\x05\x02\x0e")):
        found, end = read_struct(memoryview(text), 0, numbers=INT32)
        assert found.get(1) == 7
        assert end == len(text)


def test_random_page_headers_end_in_an_answer_or_a_refusal() -> None:
    chance = np.random.default_rng(7)
    whole = page() + page(4)
    refused = 0
    for _ in range(3000):
        data = bytearray(whole)
        for at in chance.integers(0, len(data), 3):
            data[at] = chance.integers(0, 256)
        try:
            pages(bytes(data), 7)
        except NotParquet:
            refused += 1
    assert refused > 100


def test_the_json_of_times_has_the_row_groups_in_order(
    log: DiskLog, clock: HandClock, root: Path
) -> None:
    for n in range(3):
        clock.ms = float(n)
        append(log, {0: [n]}, "w", n)
    log.compact()
    [path] = segments(root, log)
    said = pq.read_metadata(path).metadata[b"appended"]
    assert json.loads(said) == [[[0, 0], [1, 1], [2, 2]]]
