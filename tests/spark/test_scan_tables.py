"""`scan` of Delta and Iceberg tables: Spark's own reader has their snapshots."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.types import LongType
from tests.tables.lakes import DeltaLake, IcebergLake
from tests.tables.mapped import Table, rename
from tests.tables.streams import table_properties
from tests.tables.test_delta import delete_by_vector, rows_of

from streamfactory.spark import by_file, scan
from streamfactory.spi import CorruptData, DataLossError, Unsupported

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, Row, SparkSession
    from tests.tables.lakes import Lake

AT = [datetime(2024, 5, day, 23, 59, 59, 999_999, UTC) for day in (1, 2, 3)]
EARLY = datetime(1969, 1, 1, 0, 0, 0, 1, UTC)


@pytest.fixture(params=[DeltaLake, IcebergLake], ids=lambda kind: kind.kind)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    made: Lake = request.param(tmp_path / "a lake")
    return made


def ordered(frame: DataFrame) -> list[Row]:
    return sorted(frame.collect(), key=lambda row: row._offset)


def streamed(spark: SparkSession, config: dict[str, str]) -> list[Row]:
    """The same rows by `format("streamfactory")`."""
    reader = spark.read.format("streamfactory").options(**config)
    return ordered(reader.option("metadata.columns", "true").load().drop("_topic"))


def test_rows_and_columns_are_those_of_the_stream(
    spark: SparkSession, lake: Lake
) -> None:
    rows = {
        "id": [1, 2, 3],
        "text": ["a", None, "bäta"],
        "bytes": [b"a", None, b""],
        "day": [date(1500, 1, 1), None, date(2024, 2, 29)],
        "at": pa.array(AT, pa.timestamp("us", "UTC")),
        "local": pa.array([1, None, -1], pa.timestamp("us")),
        "money": pa.array([Decimal("1.50"), None, Decimal("-0.01")]),
        "o": [{"x": 1, "y": ["a"]}, None, {"x": None, "y": None}],
        "m": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
    }
    with lake.sink() as sink:
        for _ in range(3):
            sink.put(pa.table(rows))
    found = scan(lake.config, spark=spark)
    assert ordered(found) == streamed(spark, lake.config)
    assert {row._change for row in found.collect()} == {"insert"}
    assert "PythonMR" not in str(found._jdf.queryExecution().executedPlan().toString())


@pytest.mark.parametrize(
    ("by", "values"),
    [
        ("bigint", [1, -2, None]),
        ("boolean", [True, False, None]),
        ("string", ["a", "%20 =/'\\ é,", None]),
        ("date", [date(2024, 2, 29), date(1969, 12, 31), None]),
        ("decimal(9, 2)", [Decimal("1.50"), Decimal("20.01"), None]),
        ("timestamp", [AT[0], EARLY, None]),
        (
            "timestamp_ntz",
            [AT[0].replace(tzinfo=None), EARLY.replace(tzinfo=None), None],
        ),
    ],
)
def test_partition_columns_have_the_values_of_the_log(
    spark: SparkSession, tmp_path: Path, by: str, values: list[Any]
) -> None:
    lake = DeltaLake(tmp_path)
    options = {"stream.delta.partition.by": "k", "schema": f"k {by}, id bigint"}
    with lake.sink(**options) as sink:
        for number in range(2):
            sink.put({"k": values, "id": [number] * 3})
    found = scan(lake.config, spark=spark)
    assert found.columns[:2] == ["k", "id"]
    assert ordered(found) == streamed(spark, lake.config)
    assert found.where("k is not null").count() == 4


def test_files_of_many_partitions_are_told_apart_and_left_out(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has a name of its own only with its folder, as Spark writes them."""
    lake = DeltaLake(tmp_path)
    numbers = pa.table({"id": [*range(40)], "k": [f"p {n}" for n in range(40)]})
    with lake.sink(**{"stream.delta.partition.by": "k"}) as sink:
        sink.put(numbers)
    log = lake.path / "_delta_log" / f"{1:020}.json"
    text = log.read_text()
    for path in lake.data_files():
        path.rename(path.with_name("part-00000.parquet"))
        text = text.replace(path.name, "part-00000.parquet")
    log.write_text(text)
    for most in (16, 100):
        monkeypatch.setattr(by_file, "_ONE_MAP", most)
        found = scan(lake.config, spark=spark)
        assert ordered(found) == streamed(spark, lake.config)
        (row,) = found.where("k = 'p 7'").collect()
        assert row.id == 7


def test_a_column_that_older_files_lack_is_null(
    spark: SparkSession, lake: Lake
) -> None:
    with lake.sink() as sink:
        sink.put({"id": [1]})
    lake.widen()
    found = ordered(scan(lake.config, spark=spark))
    assert found == streamed(spark, lake.config)
    assert sorted((row.id, row.more) for row in found) == [(1, None), (7, "x")]


def test_changes_behind_the_snapshot_are_of_each_commit(
    spark: SparkSession, lake: Lake
) -> None:
    with lake.sink() as sink:
        sink.put({"id": [1]})
        at = lake.position_behind()
        sink.put({"id": [2]})
        sink.put({"id": [3, 4]})
    found = ordered(scan(lake.config, start=at, spark=spark))
    assert [row.id for row in found] == [2, 3, 4]
    commits = [row._commit for row in found]
    assert commits[0] != commits[1] == commits[2]


def test_an_empty_table_has_no_rows(spark: SparkSession, lake: Lake) -> None:
    lake.create(pa.schema([("id", pa.int64())]))
    assert scan(lake.config, spark=spark).collect() == []


def test_files_with_marked_rows_are_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    write_deltalake(str(path), rows_of(1, 2, 3))
    delete_by_vector(path, [1])
    with pytest.raises(Unsupported, match=r"not all rows of.*; read it with format"):
        scan(table_properties("delta", path), spark=spark)


def test_columns_that_are_stored_otherwise_are_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    mapped = Table(tmp_path / "t", "name")
    mapped.append({**dict.fromkeys(("f", "s", "l", "m")), "a": 1, "b": 2, "p": "x"})
    mapped.change(lambda columns: rename(columns, a="b", b="a"), "")
    with pytest.raises(Unsupported, match="is stored otherwise in"):
        scan(table_properties("delta", tmp_path / "t"), spark=spark)
    path = tmp_path / "narrow"
    write_deltalake(str(path), pa.table({"id": pa.array([1], pa.int64())}))
    (file,) = path.glob("*.parquet")
    pq.write_table(pa.table({"id": pa.array([1], pa.int32())}), file)
    with pytest.raises(Unsupported, match="column 'id' is stored otherwise in"):
        scan(table_properties("delta", path), spark=spark)


def test_a_file_that_was_removed_is_named(spark: SparkSession, lake: Lake) -> None:
    with lake.sink() as sink:
        sink.put({"id": [1]})
    (file,) = lake.data_files()
    file.unlink()
    with pytest.raises(DataLossError, match="was removed"):
        scan(lake.config, spark=spark)


def test_a_scan_is_of_the_snapshot_as_of_its_planning(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = DeltaLake(tmp_path)
    with lake.sink() as sink:
        sink.put({"id": [1]})
    planned = scan(lake.config, spark=spark)
    DeltaTable(str(lake.path)).delete()
    assert [row.id for row in planned.collect()] == [1]
    assert scan(lake.config, spark=spark).collect() == []


def test_a_file_with_more_rows_than_its_commit_states_is_corrupt(
    spark: SparkSession, lake: Lake
) -> None:
    with lake.sink() as sink:
        sink.put({"id": [1]})
    (file,) = lake.data_files()
    rows = pq.read_table(file)
    pq.write_table(pa.concat_tables([rows, rows]), file)
    with pytest.raises(CorruptData, match="has 2 rows, not the 1 that its commit"):
        scan(lake.config, spark=spark)


def swap_column(lake: IcebergLake, path: tuple[str, ...]) -> None:
    """Drop a column, and add another one of its name."""
    with lake.table() as table:
        with table.update_schema(allow_incompatible_changes=True) as update:
            update.delete_column(path)
        with table.update_schema() as update:
            update.add_column(path, LongType())


@pytest.mark.parametrize("path", [("a",), ("o", "x")], ids=["column", "field"])
def test_another_column_of_the_same_name_is_not_taken_for_it(
    spark: SparkSession, tmp_path: Path, path: tuple[str, ...]
) -> None:
    lake = IcebergLake(tmp_path)
    rows = {"id": [1], "a": [7], "o": [{"x": 7, "y": 8}]}
    with lake.sink() as sink:
        sink.put(pa.table(rows))
    swap_column(lake, path)
    with lake.sink() as sink:
        sink.put(pa.table(rows))
    read = streamed(spark, lake.config)
    assert sorted(f"{row.a} {row.o.x}" for row in read) == sorted(
        ["7 7", "None 7" if path == ("a",) else "7 None"]
    )
    with pytest.raises(Unsupported, match=f"column '{path[0]}' is stored otherwise"):
        scan(lake.config, spark=spark)
