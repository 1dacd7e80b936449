"""`scan`: offset ranges of Parquet topics that Spark's own reader reads."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.proving.sessions import Topic

from streamfactory.spark import scan
from streamfactory.spark.scanning import check_columns
from streamfactory.spi import (
    ConfigError,
    CorruptData,
    OffsetOutOfRange,
    Partition,
    Position,
    SchemaMismatch,
    Unsupported,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, Row, SparkSession

NAME = "all clicks"


@pytest.fixture
def parquet(tmp_path: Path) -> Topic:
    """In a folder whose name has the characters of a pattern."""
    return made(tmp_path / "a [b] {c}*?")


def made(root: Path, **options: str) -> Topic:
    form = {"stream.file.segment.format": "parquet", "stream.file.partitions": "3"}
    return Topic(root, NAME, **{**form, **options})


def at(offsets: Mapping[int, int]) -> Position:
    return Position({Partition(NAME, number): n for number, n in offsets.items()})


def ordered(frame: DataFrame) -> list[Row]:
    return sorted(frame.collect(), key=lambda row: (row._partition, row._offset))


def option(offsets: Mapping[int, int]) -> str:
    return json.dumps({NAME: offsets})


def streamed(spark: SparkSession, topic: Topic, **options: str) -> list[Row]:
    """The same rows by `format("streamfactory")`."""
    reader = spark.read.format("streamfactory").options(**{**topic.options, **options})
    return ordered(reader.option("metadata.columns", "true").load().drop("_topic"))


def plan_of(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


@pytest.mark.long("generates code for 28 columns in two ways")
def test_rows_are_those_of_the_stream_for_every_type(
    spark: SparkSession, parquet: Topic
) -> None:
    several = {
        "bool": pa.array([True, None, False]),
        **{
            f"{sign}int{bits}": pa.array(
                [0, None, 2 ** (bits - (not sign)) - 1],
                getattr(pa, f"{sign}int{bits}")(),
            )
            for sign in ("", "u")
            for bits in (8, 16, 32, 64)
        },
        "float": pa.array([1.5, None, -0.0], pa.float32()),
        "double": pa.array([1.5, None, 1e300]),
        "text": pa.array(["a", None, "bäta"]),
        "large": pa.array(["a", None, ""], pa.large_string()),
        "view": pa.array(["a", None, "a text that is not inline"], pa.string_view()),
        "binary": pa.array([b"a", None, b""]),
        "fixed": pa.array([b"abc", None, b"def"], pa.binary(3)),
        "date": pa.array([dt.date(1500, 1, 1), None, dt.date(2024, 2, 29)]),
        "utc": pa.array([-50_000_000_000_000_000, None, 2], pa.timestamp("us", "UTC")),
        "zone": pa.array([1, None, 2], pa.timestamp("us", "Europe/Berlin")),
        "local": pa.array([1, None, 2], pa.timestamp("ms")),
        "small money": pa.array([1, None, 2], pa.decimal128(5, 2)),
        "money": pa.array([1, None, 2], pa.decimal128(38, 3)),
        "list": pa.array([[1, None], None, []], pa.list_(pa.int64())),
        "lists": pa.array([[[1], None], None, []], pa.large_list(pa.list_(pa.int8()))),
        "pair": pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int32(), 2)),
        "struct": pa.array([{"a": 1, "b": ["x"]}, None, {"a": None, "b": None}]),
        "map": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
    }
    for _ in range(2):
        parquet.put(pa.table({**several, "_partition": pa.array([0, 1, 1])}))
    frame = scan(parquet.options, spark=spark)
    assert [f.dataType for f in frame.schema][-2:] == [
        field.dataType for field in spark.createDataFrame([], "p int, o bigint").schema
    ]
    rows = ordered(frame)
    assert rows == streamed(spark, parquet)
    assert [(row._partition, row._offset) for row in rows] == [
        *[(0, 0), (0, 1)],
        *[(1, 0), (1, 1), (1, 2), (1, 3)],
    ]


def test_a_range_is_exactly_its_rows_also_within_files(
    spark: SparkSession, parquet: Topic
) -> None:
    for epoch in range(3):
        ids = [*range(epoch * 30, epoch * 30 + 30)]
        parquet.write(id=ids, _partition=[0, 0, 1] * 10)
    first, last = {0: 7, 1: 10, 2: 0}, {0: 55, 1: 10, 2: 0}
    start, end = at(first), at(last)
    found = ordered(scan(parquet.options, start=start, end=end, spark=spark))
    assert [(row._partition, row._offset) for row in found] == [
        (0, offset) for offset in range(7, 55)
    ]
    given = {"startingOffsets": option(first), "endingOffsets": option(last)}
    assert found == streamed(spark, parquet, **given)
    assert ordered(scan({**parquet.options, **given}, spark=spark)) == found
    # One file, cut at both ends; and none.
    for stop in (9, 7):
        few = scan(parquet.options, start=start, end=at({0: stop, 1: 10}), spark=spark)
        assert [row._offset for row in ordered(few)] == [*range(7, stop)]
    parquet.truncate({0: 5, 1: 30})
    rest = ordered(scan(parquet.options, spark=spark))
    assert rest == streamed(spark, parquet)
    assert [row._offset for row in rest] == [*range(5, 60)]


def test_spark_prunes_columns_and_files_and_pushes_filters_down(
    spark: SparkSession, parquet: Topic
) -> None:
    parquet.write(id=[*range(30)], text=["x"] * 30, _partition=[0, 1, 2] * 10)
    frame = scan(parquet.options, spark=spark)
    plan = plan_of(frame.where("id > 5").select("text"))
    assert "FileScan parquet" in plan
    assert "Batched: true" in plan
    assert "PushedFilters: [IsNotNull(id), GreaterThan(id,5)]" in plan
    assert "BatchScan" not in plan
    assert "Python" not in plan
    assert "ReadSchema: struct<id:bigint," in plan_of(frame.select("id"))
    chosen = frame.where("_partition = 1")
    assert sorted(row.id for row in chosen.collect()) == [*range(1, 30, 3)]
    scanned = chosen._jdf.queryExecution().executedPlan().collectLeaves().apply(0)
    assert scanned.metrics().apply("numFiles").value() == 1


def test_many_files_are_told_apart(spark: SparkSession, tmp_path: Path) -> None:
    topic = made(tmp_path, **{"stream.file.compaction.files": "1000"})
    for epoch in range(12):
        topic.write(id=[epoch] * 9, _partition=[0, 1, 2] * 3)
    first, last = {0: 4, 1: 0, 2: 35}, {0: 31, 1: 36, 2: 36}
    frame = scan(topic.options, start=at(first), end=at(last), spark=spark)
    found = ordered(frame)
    given = {"startingOffsets": option(first), "endingOffsets": option(last)}
    assert found == streamed(spark, topic, **given)
    assert len(found) == 27 + 36 + 1


def test_the_topic_is_a_column_where_metadata_columns_are_asked_for(
    spark: SparkSession, parquet: Topic
) -> None:
    parquet.write(id=[1], _partition=[0])
    options = {**parquet.options, "metadata.columns": "true"}
    frame = scan(options, spark=spark)
    assert frame.columns == ["id", "_topic", "_partition", "_offset"]
    assert frame.collect() == [(1, NAME, 0, 0)]
    assert scan(options, start="latest", spark=spark).collect() == []


def test_the_active_session_is_used_and_merged_files_are_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    topic = made(tmp_path, **{"stream.file.compaction.files": "3"})
    for number in range(7):
        topic.write(id=[number], _partition=[0])
    spark.range(1).collect()
    assert [row.id for row in ordered(scan(topic.options, spark=spark))] == [*range(7)]


def test_a_file_that_retention_removes_fails_the_query_whatever_is_set(
    spark: SparkSession, parquet: Topic
) -> None:
    for number in range(2):
        parquet.write(id=[number], _partition=[0])
    for key in ("ignoreMissingFiles", "ignoreCorruptFiles"):
        spark.conf.set(f"spark.sql.files.{key}", "true")
    try:
        frame = scan(parquet.options, spark=spark)
        for path in parquet.root.rglob("*.parquet"):
            path.unlink()
        with pytest.raises(Exception, match="FAILED_READ_FILE") as caught:
            frame.collect()
    finally:
        for key in ("ignoreMissingFiles", "ignoreCorruptFiles"):
            spark.conf.unset(f"spark.sql.files.{key}")
    assert "FILE_NOT_EXIST" in str(caught.value)


def test_a_file_with_other_rows_is_refused_when_the_scan_is_planned(
    spark: SparkSession, parquet: Topic
) -> None:
    parquet.write(id=[1, 2], _partition=[0, 0])
    [path] = parquet.root.rglob("*.parquet")
    pq.write_table(pa.table({"id": [1]}), path)
    with pytest.raises(CorruptData, match="has 1 rows, but 2 were committed"):
        scan(parquet.options, spark=spark)


def test_what_cannot_be_scanned_is_refused_with_a_remedy(
    spark: SparkSession, tmp_path: Path
) -> None:
    arrow = Topic(tmp_path, NAME)
    arrow.write(id=[1])
    with pytest.raises(Unsupported, match="segments of the format arrow") as caught:
        scan(arrow.options, spark=spark)
    assert 'format("streamfactory")' in str(caught.value.remedy)
    topic = made(tmp_path / "n")
    topic.put(pa.table({"c": pa.array([1], pa.timestamp("ns"))}))
    with pytest.raises(SchemaMismatch, match=r"'c' of the type timestamp\[ns\]"):
        scan(topic.options, spark=spark)
    messages = made(tmp_path / "m", **{"stream.file.decoder.class.name": "raw"})
    messages.put(pa.table({"value": pa.array([b"{}"])}))
    with pytest.raises(Unsupported, match="undecoded messages"):
        scan(messages.options, spark=spark)
    topic = made(tmp_path / "r")
    topic.write(id=[1], _partition=[0])
    with pytest.raises(OffsetOutOfRange):
        scan(topic.options, start=at({0: 9, 1: 0, 2: 0}), spark=spark)
    with pytest.raises(ConfigError):
        scan({**topic.options, "startingOfsets": "earliest"}, spark=spark)
    remote: dict[str, Any] = {
        **topic.options,
        "stream.file.path": "s3://bucket/streams",
        "stream.file.storage.anonymous": "true",
    }
    del remote["stream.file.fsync"]
    with pytest.raises(Unsupported, match="s3://bucket"):
        scan(remote, spark=spark)
    foreign = tmp_path / "rows.arrow"
    with pa.ipc.new_file(foreign, pa.schema({"id": pa.int64()})):
        pass
    others = {"streamType": "file", "stream.file.path": str(foreign)}
    with pytest.raises(Unsupported, match="format=file"):
        scan({**others, "stream.file.format": "file"}, spark=spark)


@pytest.mark.parametrize(
    ("names", "topic"),
    [
        (["_Partition"], None),
        (["_TOPIC"], "t"),
        (["_METADATA"], None),
        (["id", "ID"], None),
    ],
)
def test_columns_that_differ_only_in_case_are_refused(
    names: list[str], topic: str | None
) -> None:
    schema = pa.schema([(name, pa.int64()) for name in names])
    with pytest.raises(SchemaMismatch, match=f"'{names[-1]}'.*ignores case") as caught:
        check_columns(schema, topic, "s")
    assert 'format("streamfactory")' in str(caught.value.remedy)
    own = {"_topic": pa.int64(), "_offset": pa.int64(), "id": pa.int64()}
    check_columns(pa.schema(own), None, "s")
