"""Parquet files of other programs: rows, offsets, folders, and files that lie."""

from __future__ import annotations

import datetime as dt
import random
import time
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.foreign.stage import config_of
from tests.fuzz.columns import columns
from tests.proving.tiers import sample

from streamfactory.arrowlog.disk.pages import read_groups
from streamfactory.arrowlog.disk.thrift import NotParquet
from streamfactory.backends.file.foreign import create_consumer, parquetfile
from streamfactory.backends.file.foreign.types import difference, plain, plain_type
from streamfactory.spi import (
    CorruptData,
    FetchLimits,
    FormatRefused,
    IncarnationChanged,
    Partition,
    StreamTimeout,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.foreign.stage import Consumers, Infos, Values

NOW = FetchLimits(1_000_000, 1 << 30, 0.0)
ROWS = 150_000
"""More than are decoded at once."""
PARQUET = {"format": "parquet"}


def write(path: Path, *numbers: int) -> Path:
    pq.write_table(pa.table({"number": pa.array(numbers, pa.int64())}), path)
    return path


def rows_from(
    path: Path, start: int = 0, fields: Any = None, **options: str
) -> list[pa.RecordBatch]:
    config = config_of(path, **PARQUET, **options)
    consumer = create_consumer(config, Partition("t", 0), fields)
    found = []
    try:
        while (got := consumer.fetch_messages(start, None, NOW)).rows is not None:
            found.append(got.rows)
            assert got.next_offset > start
            start = got.next_offset
    finally:
        consumer.close()
    return found


def table_from(path: Path, start: int = 0, **options: Any) -> pa.Table:
    return pa.Table.from_batches(rows_from(path, start, **options))


def text_of(rows: int) -> pa.Table:
    """Columns of which the dictionary is kept, given up, and of neither kind."""
    names = [f"user-{i * 7919 % rows:09d}-abcdefghijkl" for i in range(rows)]
    few = pa.array([None if i % 5 == 0 else f"k{i % 97}" for i in range(rows)])
    offsets = pa.array(range(rows + 1), pa.int32())
    return pa.table(
        {
            "number": pa.arange(0, rows),
            "few": few,
            "names": names,
            "list": pa.ListArray.from_arrays(offsets, pa.array(names)),
            "lists": pa.ListArray.from_arrays(offsets, few),
            "struct": pa.StructArray.from_arrays([few, pa.array(names)], ["a", "b"]),
        }
    )


UNSUPPORTED = {
    "decimal256",
    "dense_union",
    "dictionary_of_lists",
    "empty_binary",
    "empty_list",
    "interval",
    "list_of_runs",
    "runs16",
    "runs32",
    "runs64",
    "runs_in_struct",
    "runs_of_lists",
    "runs_of_numbers",
    "sparse_union",
    "struct_of_nothing",
    "struct_of_views",
    "unsigned_dictionary",
}
"""Columns that Arrow does not write to Parquet, or does not read from it."""
if int(pa.__version__.partition(".")[0]) < 26:
    UNSUPPORTED |= {"fixed_list", "large_list_view", "list_view", "list_view_of_text"}


def round_trip(table: pa.Table, path: Path) -> pa.Table:
    """Write a table, and read it, by Arrow."""
    pq.write_table(table, path, row_group_size=3)
    return pq.read_table(path)


@pytest.mark.parametrize("name", sorted(UNSUPPORTED))
def test_arrow_does_not_support_the_columns_that_are_left_out(
    name: str, tmp_path: Path
) -> None:
    table = pa.table({name: columns()[name]})
    with pytest.raises((pa.ArrowException, OSError)):
        round_trip(table, tmp_path / "a")


@pytest.mark.parametrize("name", sorted(columns().keys() - UNSUPPORTED))
def test_columns_of_every_type_have_their_values(name: str, tmp_path: Path) -> None:
    table = pa.table({name: columns()[name]})
    read = round_trip(table, tmp_path / "a")
    column = read.column(name).combine_chunks()
    wanted = plain(column, plain_type(column.type))
    found = table_from(tmp_path / "a").column(name)
    assert found.type == wanted.type
    assert found.combine_chunks().equals(wanted)


@pytest.mark.parametrize("more", [-1, 1])
def test_a_column_with_other_values_than_rows_is_refused(
    more: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lying(*arguments: Any) -> Any:
        return [
            group._replace(
                chunks=tuple(
                    one._replace(values=one.values + more) for one in group.chunks
                )
            )
            for group in read_groups(*arguments)
        ]

    path = write(tmp_path / "a", *range(10))
    monkeypatch.setattr(parquetfile, "read_groups", lying)
    with pytest.raises(CorruptData, match=f"it has {10 + more} values in 10 rows"):
        rows_from(path)


def test_row_groups_without_rows_are_passed_over(tmp_path: Path) -> None:
    table = pa.table({"number": pa.arange(0, 5)})
    with pq.ParquetWriter(tmp_path / "a", table.schema) as writer:
        for first, count in ((0, 2), (2, 0), (2, 2), (4, 0), (4, 1)):
            writer.write_table(table.slice(first, count))
    groups = pq.read_metadata(tmp_path / "a")
    assert [groups.row_group(n).num_rows for n in range(5)] == [2, 0, 2, 0, 1]
    for start in range(5):
        found = table_from(tmp_path / "a", start).column("number").to_pylist()
        assert found == [*range(start, 5)]


@pytest.mark.parametrize("version", sample(["2.0", "1.0"], "the older format"))
@pytest.mark.parametrize("group", [1000, ROWS])
def test_a_read_from_any_offset_has_the_rows_behind_it(
    version: str, group: int, tmp_path: Path
) -> None:
    table = text_of(ROWS)
    path = tmp_path / "a"
    pq.write_table(table, path, row_group_size=group, data_page_version=version)
    assert table_from(path).equals(table)
    chance = random.Random(3)
    for start in (1, 999, 1000, 65_535, 65_536, chance.randrange(ROWS), ROWS - 1):
        assert table_from(path, start).equals(table.slice(start))


def test_offsets_are_read_in_any_order_by_one_consumer(
    tmp_path: Path, consumer_factory: Consumers
) -> None:
    pq.write_table(text_of(ROWS), tmp_path / "a", row_group_size=70_000)
    consumer = consumer_factory(tmp_path / "a", **PARQUET)
    limits, chance = FetchLimits(100, 1 << 30, 0.0), random.Random(5)
    for _ in range(30):
        start = chance.randrange(ROWS)
        rows = consumer.fetch_messages(start, None, limits).rows
        assert rows is not None
        wanted = range(start, min(ROWS, start + rows.num_rows))
        assert rows.column("number").to_pylist() == [*wanted]


@pytest.mark.parametrize("mapped", ["true", "false"])
def test_only_wanted_columns_come_and_in_their_order(
    mapped: str, tmp_path: Path
) -> None:
    table = text_of(1000).append_column("few.x", pa.arange(0, 1000))
    pq.write_table(table, tmp_path / "a")
    for names in (["struct", "number"], ["few"], ["few.x", "few"], []):
        rows = rows_from(tmp_path / "a", fields=names, memory__map=mapped)
        assert sum(part.num_rows for part in rows) == 1000
        assert pa.Table.from_batches(rows).equals(table.select(names))


def test_a_column_with_a_name_of_a_nested_one_is_read(tmp_path: Path) -> None:
    nested = pa.array([{"b": "x", "c": 1}])
    table = pa.table({"a": nested, "a.b": ["y"]})
    options: Any = {"use_dictionary": False}
    pq.write_table(table, tmp_path / "a", **options)
    for names in (["a.b"], ["a"], ["a.b", "a"]):
        assert table_from(tmp_path / "a", fields=names).equals(table.select(names))
    # Which of the two Arrow would read as a dictionary is up to Arrow.
    pq.write_table(table, tmp_path / "a")
    with pytest.raises(CorruptData, match="a path of two columns"):
        table_from(tmp_path / "a")


def test_files_of_other_writers_are_read(tmp_path: Path) -> None:
    time = dt.datetime(2026, 1, 1, 12, 30, 0, 5, tzinfo=dt.UTC)
    frame = pl.DataFrame(
        {
            "s": ["a", None, "more than twelve bytes"],
            "l": [["p", "q"], [], None],
            "t": [time, None, None],
        }
    ).with_columns(pl.Series("c", ["x", "y", "x"], dtype=pl.Categorical))
    frame.write_parquet(tmp_path / "polars")
    assert table_from(tmp_path / "polars").to_pydict() == frame.to_dict(as_series=False)
    with duckdb.connect() as database:
        query = "select i, i::varchar s, (i / 4)::decimal(9, 2) d, [i::varchar] l, "
        query += "timestamptz '2026-01-01' t from range(100000) r(i)"
        path = tmp_path / "duckdb"
        database.sql(f"copy ({query}) to '{path}' (format parquet)")
    wanted = pq.read_table(path).drop_columns(["t"])
    assert wanted.num_rows == 100_000
    assert table_from(path).drop_columns(["t"]).equals(wanted)


def test_old_timestamps_of_spark_have_years_after_2262(tmp_path: Path) -> None:
    times = pa.array(
        [dt.datetime(9999, 12, 31, tzinfo=dt.UTC), None], pa.timestamp("us")
    )
    table = pa.table({"t": times})
    pq.write_table(table, tmp_path / "a", use_deprecated_int96_timestamps=True)
    assert table_from(tmp_path / "a").equals(table)


def test_row_groups_are_read_as_arrow_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "a"
    pq.write_table(text_of(10_000), path, row_group_size=3000)
    data, metadata = path.read_bytes(), pq.read_metadata(path)
    length = int.from_bytes(data[-8:-4], "little")
    groups = read_groups(data[-8 - length : -8], metadata.num_columns)
    assert [group.rows for group in groups] == [3000, 3000, 3000, 1000]
    for number, group in enumerate(groups):
        for column, chunk in enumerate(group.chunks):
            wanted = metadata.row_group(number).column(column)
            first = wanted.dictionary_page_offset or wanted.data_page_offset
            size = wanted.total_compressed_size
            assert chunk == (first, size, wanted.num_values)
    with pytest.raises(NotParquet, match="does not have the 3 columns"):
        read_groups(data[-8 - length : -8], 3)


# --- folders ------------------------------------------------------------------------


def test_files_of_a_folder_keep_their_offsets(
    tmp_path: Path, values_of: Values, info_of: Infos
) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    write(folder / "m.parquet", 0, 1)
    (folder / "_SUCCESS").touch()
    (folder / "_metadata").write_bytes(b"x" * 20)
    (folder / ".m.parquet.crc").write_bytes(b"x" * 20)
    assert info_of(folder, **PARQUET).latest == 2
    for name, number in (("z.parquet", 2), ("a.parquet", 3)):
        write(folder / name, number)
        assert info_of(folder, **PARQUET).latest == number + 1
    for order in ("name", "time"):
        assert values_of(folder, order=order, **PARQUET) == [0, 1, 2, 3]
    assert values_of(folder, 3, **PARQUET) == [3]
    (folder / "m.parquet").unlink()
    assert info_of(folder, **PARQUET).earliest == 2
    assert values_of(folder, 2, **PARQUET) == [2, 3]


def test_a_file_without_its_footer_is_waited_for(
    tmp_path: Path, values_of: Values
) -> None:
    whole = write(tmp_path / "whole", *range(1000)).read_bytes()
    folder = tmp_path / "files"
    folder.mkdir()
    for cut in (0, 3, 4, 100, len(whole) - 9, len(whole) - 1):
        (folder / "growing").write_bytes(whole[:cut])
        assert values_of(folder, **PARQUET) == []
        with pytest.raises(StreamTimeout):
            values_of(folder / "growing", **PARQUET)
    (folder / "growing").write_bytes(whole)
    assert values_of(folder, **PARQUET) == [*range(1000)]
    assert values_of(folder / "growing", **PARQUET) == [*range(1000)]


def test_files_that_vanish_or_change_are_losses_that_reading_resumes_behind(
    tmp_path: Path, info_of: Infos, consumer_factory: Consumers
) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    for number in range(3):
        write(folder / f"{number}.parquet", number)
    assert info_of(folder, **PARQUET).latest == 3
    (folder / "1.parquet").unlink()
    write(folder / "2.parquet", 7)
    consumer = consumer_factory(folder, **PARQUET)
    with pytest.raises(CorruptData, match=r"1\.parquet.*is missing") as missing:
        consumer.fetch_messages(1, None, NOW)
    assert missing.value.resume == 2
    with pytest.raises(IncarnationChanged, match="has changed") as changed:
        consumer.fetch_messages(2, None, NOW)
    assert changed.value.resume == 3


def test_what_is_no_parquet_file_is_refused_by_name(
    tmp_path: Path, values_of: Values
) -> None:
    path = tmp_path / "a"
    for begin in (b"ARROW1\0\0", b"PARE" + b"\0" * 20, b"id,name\n1,a\n"):
        path.write_bytes(begin)
        with pytest.raises(FormatRefused, match="is not a Parquet file") as refused:
            values_of(path, **PARQUET)
        assert str(path) in refused.value.what
    write(path, 1)
    with pytest.raises(FormatRefused) as refused:
        values_of(path)
    assert "set `format` to parquet" in str(refused.value.remedy)


def test_folders_of_partition_values_are_refused(
    tmp_path: Path, values_of: Values
) -> None:
    write(tmp_path / "a.parquet", 1)
    (tmp_path / "day=2026-01-01").mkdir()
    with pytest.raises(FormatRefused, match="day=2026-01-01"):
        values_of(tmp_path, **PARQUET)


# --- files that lie -----------------------------------------------------------------


def repeated(text: str, rows: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), [text])


def nested(column: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array([0, len(column)], pa.int32()), column)


@pytest.mark.parametrize("mapped", ["true", "false"])
def test_a_small_file_that_stands_for_gigabytes_is_read_in_pieces(
    mapped: str, tmp_path: Path, consumer_factory: Consumers
) -> None:
    path, count = tmp_path / "a", 100_000
    columns = [pa.arange(0, count), repeated("x" * 50_000, count)]
    table = pa.table(columns, names=["number", "text"])
    pq.write_table(table, path, store_schema=False)
    consumer = consumer_factory(path, **PARQUET, memory__map=mapped)
    before = pa.total_allocated_bytes()
    for start in (0, 70_000, 5):
        rows = consumer.fetch_messages(start, None, NOW).rows
        assert rows is not None
        assert rows.column("number")[0].as_py() == start
        assert rows.schema.field("text").type == pa.string()
        assert pa.total_allocated_bytes() - before < 32 << 20


def test_a_dictionary_that_is_given_up_repeats_no_more_than_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of a part are so few that each may be as long as the dictionary."""
    count = 30_000
    names = [f"{i:050d}" for i in range(count)]
    table = pa.table({"text": names})
    pq.write_table(table, tmp_path / "a", data_page_size=10_000)
    limit = 8 << 20
    parts = [len(part) for part in rows_from(tmp_path / "a", message__max__bytes="8M")]
    encodings = pq.ParquetFile(tmp_path / "a").metadata.row_group(0).column(0).encodings
    assert {"PLAIN", "RLE_DICTIONARY"} <= {*encodings}
    assert max(parts) <= limit // 1_000_000
    assert sum(parts) == count


@pytest.mark.parametrize(
    ("column", "options", "words"),
    [
        (
            lambda: nested(pa.nulls(3_000_000, pa.int64())),
            {},
            "expands to more than",
        ),
        (
            lambda: nested(pa.array(["x" * 1000] * 100_000)),
            {"use_dictionary": False, "column_encoding": "DELTA_BYTE_ARRAY"},
            "expands to more than",
        ),
        (lambda: pa.array(["x" * 1000] * 20_000), {"use_dictionary": False}, "expand"),
        (
            lambda: pa.StructArray.from_arrays(
                [pa.array(["x" * 1000] * 9_000)] * 2, ["a", "b"]
            ),
            {"use_dictionary": False},
            "expands to more than",
        ),
        (
            lambda: pa.array(["" for _ in range(5_000_000)]),
            {"use_dictionary": False, "column_encoding": "DELTA_LENGTH_BYTE_ARRAY"},
            "expands to more than",
        ),
    ],
    ids=["levels", "prefixes", "pages", "columns", "lengths"],
)
def test_a_row_group_that_expands_to_more_than_the_limit_is_refused(
    column: Callable[[], pa.Array], options: dict[str, Any], words: str, tmp_path: Path
) -> None:
    path = tmp_path / "a"
    pq.write_table(
        pa.table({"c": column()}),
        path,
        compression="zstd",
        row_group_size=1 << 30,
        **options,
    )
    assert path.stat().st_size < 200_000
    counting = pa.proxy_memory_pool(pa.default_memory_pool())
    usual = pa.default_memory_pool()
    pa.set_memory_pool(counting)
    try:
        with pytest.raises(FormatRefused, match=words) as refused:
            rows_from(path, message__max__bytes="16M")
    finally:
        pa.set_memory_pool(usual)
    assert str(path) in refused.value.what
    assert "unsupported" in refused.value.what
    assert "message.max.bytes" in str(refused.value)
    assert (counting.max_memory() or 0) < 32 << 20


ENCODED = {
    "DELTA_BINARY_PACKED": pa.array([1, None, -(2**62), 7] * 500, pa.int64()),
    "DELTA_LENGTH_BYTE_ARRAY": pa.array(["a", None, "", "bcd"] * 500),
    "DELTA_BYTE_ARRAY": pa.array(["prefix-a", None, "", "prefix-abc"] * 500),
}


@pytest.mark.parametrize("encoding", ENCODED)
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("compression", ["none", "snappy"])
def test_encodings_of_other_writers_are_read(
    encoding: str, version: Any, compression: str, tmp_path: Path
) -> None:
    column = ENCODED[encoding]
    table = pa.table(
        {
            "c": column,
            "s": pa.StructArray.from_arrays([column], ["inner"]),
            "l": pa.array([[value] * 2 for value in column.to_pylist()]),
        }
    )
    pq.write_table(
        table,
        tmp_path / "a",
        use_dictionary=False,
        column_encoding=dict.fromkeys(("c", "s.inner", "l.list.element"), encoding),
        data_page_version=version,
        compression=compression,
        data_page_size=500,
    )
    stored = pq.ParquetFile(tmp_path / "a").metadata.row_group(0)
    assert all(encoding in stored.column(i).encodings for i in range(3))
    assert table_from(tmp_path / "a").equals(table)


def test_prefixes_that_repeat_are_read_in_pieces(tmp_path: Path) -> None:
    count = 60_000
    pq.write_table(
        pa.table({"c": ["x" * 5000] * count}),
        tmp_path / "a",
        use_dictionary=False,
        column_encoding="DELTA_BYTE_ARRAY",
        compression="zstd",
    )
    assert (tmp_path / "a").stat().st_size < 100_000
    parts = [len(part) for part in rows_from(tmp_path / "a", message__max__bytes="16M")]
    assert sum(parts) == count
    assert max(parts) * 5000 <= 16 << 20


def test_numbers_are_streamed_however_many_a_row_group_has(
    tmp_path: Path, consumer_factory: Consumers
) -> None:
    column = pa.array(np.zeros(9_000_000, np.int64))
    pq.write_table(pa.table({"c": column}), tmp_path / "a", row_group_size=1 << 30)
    del column
    consumer = consumer_factory(tmp_path / "a", message__max__bytes="16M", **PARQUET)
    before = pa.total_allocated_bytes()
    for start in (0, 8_000_000):
        assert consumer.fetch_messages(start, None, NOW).rows is not None
        assert pa.total_allocated_bytes() - before < 16 << 20


def test_text_that_is_not_utf8_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "a"
    table = pa.table({"c": ["abcdef", "ghijkl"]})
    options: Any = {"compression": "none", "write_statistics": False}
    pq.write_table(table, path, **options)
    path.write_bytes(path.read_bytes().replace(b"ghijkl", b"ghi\xffkl"))
    with pytest.raises(CorruptData) as refused:
        rows_from(path)
    assert str(path) in refused.value.what


def test_a_footer_with_more_rows_than_pages_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a", *range(100))
    data = path.read_bytes()
    footer = data.rindex(b"\x16\xc8\x01")  # 100 as a number of 64 bits
    path.write_bytes(data[:footer] + b"\x16\xca\x01" + data[footer + 3 :])
    with pytest.raises(CorruptData) as refused:
        rows_from(path)
    assert str(path) in refused.value.what


def test_a_changed_byte_of_a_page_with_a_checksum_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a"
    table = pa.table({"c": [*range(1000)]})
    options: Any = {"compression": "none", "use_dictionary": False}
    pq.write_table(table, path, write_page_checksum=True, **options)
    data = bytearray(path.read_bytes())
    data[4000] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptData):
        rows_from(path)


def test_wide_schemas_are_compared_in_linear_time() -> None:
    wide = pa.schema([(f"column_{number}", pa.int64()) for number in range(30_000)])
    began = time.process_time()
    assert difference(wide, wide) is None
    # A search for each name would take minutes.
    assert time.process_time() - began < 10
    more = wide.append(pa.field("more", pa.int64()))
    assert difference(more, wide) == "it has the additional column 'more'"
    assert difference(wide, more) == "it has no column 'more'"
