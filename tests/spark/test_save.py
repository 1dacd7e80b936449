"""`save`: epochs that Spark's own Parquet writer writes."""

from __future__ import annotations

import datetime as dt
import logging
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.proving.sessions import Topic

from streamfactory.spark import keys, save, scan
from streamfactory.spark.versions import ARROW_FUNCTIONS
from streamfactory.spi import (
    ConfigError,
    EpochInThePast,
    EpochMismatch,
    SchemaMismatch,
    StorageFailed,
    Unsupported,
    Verification,
)

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

NAME = "all clicks"


def made(root: Path, name: str = NAME, **options: str) -> Topic:
    form = {"stream.file.segment.format": "parquet", "stream.file.partitions": "3"}
    return Topic(root, name, **{**form, **options})


@pytest.fixture
def parquet(tmp_path: Path) -> Topic:
    """In a folder whose name has the characters of a pattern and of a URL."""
    return made(tmp_path / "a [b] {c}*?%20#")


def places(spark: SparkSession, topic: Topic) -> list[tuple[int, int, Any]]:
    """Partition, offset and id of all rows."""
    frame = scan(topic.options, spark=spark).select("_partition", "_offset", "id")
    return sorted(tuple(row) for row in frame.collect())


def leftovers(topic: Topic) -> list[str]:
    """What no reader needs: staged files and folders."""
    staged = [str(path) for path in topic.root.rglob("staging/*")]
    held = {path.name for path in topic.root.rglob("*.parquet")}
    with topic._log() as log:
        needed = {
            file.path.rpartition("/")[2]
            for partition in log.bounds()
            for file in log.files(partition.id, partition.earliest, partition.latest)
        }
    return staged + sorted(held - needed)


EVERY = (
    "id",
    "id % 2 = 0 as bool",
    "cast(id as byte) as byte",
    "cast(id as short) as short",
    "if(id % 3 = 0, null, cast(id as int)) as number",
    "cast(id as float) as float",
    "id * 0.5D as double",
    "concat('bäta ', id) as text",
    "cast(concat('b', id) as binary) as binary",
    "date_add(date'1500-01-01', cast(id as int)) as date",
    "timestamp_micros(id - 50000000000000000) as utc",
    "timestamp_ntz'1500-01-01 00:00:00.000001' as local",
    "cast(id as decimal(5, 2)) as small",
    "cast(id as decimal(18, 0)) as middle",
    "cast(-id as decimal(38, 3)) as money",
    "array(id, null) as list",
    "if(id % 2 = 0, array(array('x'), array(), null), null) as lists",
    "named_struct('a', id, 'b', array('x')) as struct",
    "if(id % 2 = 0, map('k', id, 'l', null), null) as map",
)


def test_rows_are_those_of_the_sink_in_python_for_every_type(
    spark: SparkSession, parquet: Topic
) -> None:
    frame = spark.range(0, 20, 1, 2).selectExpr(*EVERY)
    assert save(frame, parquet.options)
    other = made(parquet.root, "other")
    frame.write.format("streamfactory").options(**other.options).mode("append").save()
    by_id = {row["id"]: row for row in other.rows()}
    assert {row["id"]: row for row in parquet.rows()} == by_id
    assert len(by_id) == 20
    with parquet._log() as log, other._log() as expected:
        assert log.schema.equals(expected.schema)
    scanned = scan(parquet.options, spark=spark).drop("_partition", "_offset")
    assert sorted(scanned.collect()) == sorted(frame.collect())
    # Both writers append to one topic, and merges combine their files.
    frame.write.format("streamfactory").options(**parquet.options).mode("append").save()
    with parquet._log() as log:
        log.compact()
        assert log.verify().problems == ()
    assert len(parquet.rows()) == 40


def test_rows_go_by_task_or_by_their_column_and_keep_their_order(
    spark: SparkSession, parquet: Topic
) -> None:
    tasks = spark.range(0, 8, 1, 4)
    save(tasks, parquet.options)
    by_task = {0: [0, 1, 6, 7], 1: [2, 3], 2: [4, 5]}
    assert places(spark, parquet) == [
        (partition, offset, number)
        for partition, numbers in by_task.items()
        for offset, number in enumerate(numbers)
    ]
    assert leftovers(parquet) == []
    parquet.truncate({0: 4, 1: 2, 2: 2})
    rows = tasks.selectExpr("cast(2 - id % 3 as bigint) as _partition", "id")
    save(rows.coalesce(1), parquet.options)
    assert places(spark, parquet) == [
        *[(0, 4, 2), (0, 5, 5)],
        *[(1, 2, 1), (1, 3, 4), (1, 4, 7)],
        *[(2, 2, 0), (2, 3, 3), (2, 4, 6)],
    ]
    assert parquet.column("id") == [*range(8)]


KEYS = {
    "_key": ["if(id % 5 = 0, null, concat('k', id % 7)) as _key"],
    "number": ["if(id % 5 = 0, null, id % 7) as number"],
    "text,at": ["concat('bäta ', id % 7) as text", "timestamp_micros(id % 3) as at"],
}


ROUTED = pytest.mark.skipif(
    not ARROW_FUNCTIONS, reason="PySpark 4.1 brought functions of Arrow arrays"
)


@ROUTED
@pytest.mark.parametrize("columns", sorted(KEYS))
def test_rows_with_keys_go_where_the_sink_in_python_writes_them(
    spark: SparkSession, parquet: Topic, columns: str
) -> None:
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kathmandu")
    options = {} if columns == "_key" else {"producer.key.columns": columns}
    topics = [made(parquet.root, name, **options) for name in ("saved", "other")]
    frame = spark.range(0, 60, 1, 4).selectExpr("id", *KEYS[columns])
    try:
        save(frame, topics[0].options)
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(zone))
    writer = frame.write.format("streamfactory").options(**topics[1].options)
    writer.mode("append").save()
    saved, expected = (places(spark, topic) for topic in topics)
    assert saved == expected
    assert len({partition for partition, _, _ in saved}) == 3


def test_a_repeated_epoch_has_no_effect_and_other_rows_are_reported(
    spark: SparkSession, parquet: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    def again(rows: DataFrame, epoch: int, **options: str) -> bool:
        synced = {"stream.file.fsync": "always"}
        topic = {**parquet.options, **synced, **options}
        return save(rows, topic, writer_id="w", epoch=epoch)

    assert again(spark.range(6), 0)
    assert not again(spark.range(6), 0)
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        assert not again(spark.range(5), 0)
    assert "epoch 0 was repeated with 5 rows instead of 6" in caplog.text
    strict = {"epoch.mismatch": "fail"}
    with pytest.raises(EpochMismatch, match="5 rows instead of 6"):
        again(spark.range(5), 0, **strict)
    assert again(spark.range(6, 12), 3, **strict)
    assert not again(spark.range(6, 12, 1, 3), 3, **strict)
    with pytest.raises(EpochMismatch, match="other content in as many rows"):
        again(spark.range(7, 13), 3, **strict)
    with pytest.raises(EpochInThePast):
        again(spark.range(1), 2)
    assert parquet.column("id") == [*range(12)]
    assert leftovers(parquet) == []
    # The other path has the same writers, and sees the same content.
    writer = spark.range(6, 12).write.format("streamfactory").options(**parquet.options)
    writer = writer.options(**{"writer.id": "w", "epoch": "3", **strict})
    writer.mode("append").save()
    assert len(parquet.rows()) == 12


def test_columns_have_to_fit(spark: SparkSession, parquet: Topic) -> None:
    first = spark.range(3).selectExpr("id", "'a' as `my.text`", "0.5D as price")
    save(first, parquet.options)
    save(spark.sql("select 1.5F as price, 7Y as id"), parquet.options)
    rows = [(r["id"], r["my.text"], r["price"]) for r in parquet.rows()]
    assert (7, None, 1.5) in rows
    for columns, message in (
        ("id as more", "not in the declared schema"),
        ("cast(id as decimal(20)) as id", "'id' is"),
        ("cast(id as string) as id", "'id' is"),
        ("id, 5 as price", "'price' is"),
    ):
        with pytest.raises(SchemaMismatch, match=message):
            save(spark.range(1).selectExpr(*columns.split(", ")), parquet.options)
    # Text that is not UTF-8 is refused, wherever it is.
    bad, one = "cast(x'ff' as string)", spark.range(0, 1, 1, 1)
    with pytest.raises(Exception, match="INVALID_UTF8_STRING"):
        save(one.selectExpr("id", f"{bad} as `my.text`"), parquet.options)
    values = (f"array({bad})", f"struct({bad} as a)", f"map({bad}, 1)")
    for number, value in enumerate(values):
        nested = made(parquet.root, f"nested {number}")
        with pytest.raises(Exception, match="INVALID_UTF8_STRING"):
            save(one.selectExpr(f"{value} as c"), nested.options)
        assert nested.rows() == []
    assert len(parquet.rows()) == 4
    assert leftovers(parquet) == []


def test_partitions_that_do_not_exist_are_refused(
    spark: SparkSession, parquet: Topic
) -> None:
    for value, message in (("3", "the value 3"), ("-1", "value -1"), ("null", "nulls")):
        rows = spark.range(9).selectExpr("id", f"int({value}) as _partition")
        with pytest.raises(SchemaMismatch, match=message) as caught:
            save(rows, parquet.options)
        assert caught.value.remedy == "use partitions 0 to 2"
    with pytest.raises(SchemaMismatch, match="'_partition' is string"):
        save(spark.range(1).selectExpr("id", "'1' as _partition"), parquet.options)
    assert parquet.rows() == []
    assert leftovers(parquet) == []


def test_no_row_has_nothing_and_creates_the_topic(
    spark: SparkSession, parquet: Topic
) -> None:
    empty = spark.range(3).where("id > 5")
    assert save(empty, parquet.options, writer_id="w", epoch=0)
    assert not save(empty, parquet.options, writer_id="w", epoch=0)
    assert parquet.rows() == []
    assert leftovers(parquet) == []


@pytest.mark.long("8 million numbers")
@pytest.mark.parametrize("compression", ["lz4", "none"])
def test_row_groups_are_batches_that_readers_accept(
    spark: SparkSession, tmp_path: Path, compression: str
) -> None:
    topic = made(tmp_path, **{"stream.file.compression": compression})
    numbers = [f"id + {n} as c{n}" for n in range(200)]
    text = "if(id % 100 = 0, substring(repeat(sha2(string(id), 512), 800), 1), '')"
    rows = spark.range(0, 40_000, 1, 1).selectExpr(*numbers, f"{text} as text")
    save(rows, topic.options)
    [path] = topic.root.rglob("data/*.parquet")
    found = pq.read_metadata(path)
    groups = [found.row_group(n) for n in range(found.num_row_groups)]
    most = 33_554_432 // (200 * 8 + 4)
    assert len(groups) > 1
    assert max(group.num_rows for group in groups) <= most
    assert max(group.total_byte_size for group in groups) < 64 << 20
    codec = {"none": "UNCOMPRESSED", "lz4": "LZ4"}[compression]
    assert {group.column(0).compression for group in groups} == {codec}
    with topic._log() as log:
        assert log.verify() == Verification(40_000, ())


def test_a_batch_of_a_stream_is_saved_once(
    spark: SparkSession, parquet: Topic, tmp_path: Path
) -> None:
    source = parquet.another("source", **{"stream.file.partitions": "2"})
    source.write(id=[*range(10)])
    done: list[bool] = []

    def each(frame: DataFrame, epoch: int) -> None:
        first, again = (
            save(frame, parquet.options, writer_id="w", epoch=epoch) for _ in range(2)
        )
        done.extend((first, again))

    stream = spark.readStream.format("streamfactory").options(**source.options)
    frame = stream.option("startingOffsets", "earliest").load()
    with pytest.raises(Exception, match="one of a stream"):
        save(frame, parquet.options)
    query = frame.writeStream.foreachBatch(each)
    query = query.option("checkpointLocation", str(tmp_path / "checkpoint"))
    running = query.trigger(availableNow=True).start()
    assert running.awaitTermination(400)
    assert done == [True, False]
    assert parquet.column("id") == [*range(10)]


def test_rows_that_the_driver_does_not_see_fail_the_epoch(
    spark: SparkSession, parquet: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a folder that each machine has for itself."""
    from streamfactory.spark import parquet_files, saving

    found = parquet_files.find_files

    def fewer(*arguments: Any, **options: Any) -> list[tuple[int, str]]:
        return found(*arguments, **options)[1:]

    monkeypatch.setattr(saving, "find_files", fewer)
    with pytest.raises(StorageFailed, match=r"8 rows were written, but .* have 6"):
        save(spark.range(0, 8, 1, 4), parquet.options, writer_id="w", epoch=0)
    monkeypatch.undo()
    assert save(spark.range(0, 8, 1, 4), parquet.options, writer_id="w", epoch=0)
    assert parquet.column("id") == [*range(8)]
    assert leftovers(parquet) == []


def test_settings_of_the_session_do_not_matter_and_stay(
    spark: SparkSession, parquet: Topic
) -> None:
    others = {
        "spark.sql.parquet.outputTimestampType": "INT96",
        "spark.sql.parquet.writeLegacyFormat": "true",
        "spark.sql.files.maxRecordsPerFile": "3",
        "spark.sql.sources.partitionOverwriteMode": "dynamic",
        "spark.sql.parquet.compression.codec": "gzip",
    }
    for key, value in others.items():
        spark.conf.set(key, value)
    try:
        rows = spark.range(0, 10, 1, 1).selectExpr(
            "id", "timestamp_micros(id) as at", "cast(id as decimal(5,2)) as d"
        )
        save(rows, parquet.options)
        assert {spark.conf.get(key) for key in others} == {*others.values()}
    finally:
        for key in others:
            spark.conf.unset(key)
    assert [row["id"] for row in parquet.rows()] == [*range(10)]
    first = parquet.rows()[1]
    assert first["at"] == dt.datetime.fromtimestamp(1e-6, dt.UTC)
    assert first["d"] == Decimal(1)


def test_what_cannot_be_saved_is_refused_with_a_remedy(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = spark.range(1)
    arrow = Topic(tmp_path, "arrow")
    with pytest.raises(Unsupported, match=r"segment\.format=arrow") as caught:
        save(rows, arrow.options)
    assert "segment.format=parquet" in str(caught.value.remedy)
    assert not [*tmp_path.rglob("*.topic")]
    arrow.write(id=[1])
    with pytest.raises(Unsupported, match="segments of the format arrow"):
        save(rows, made(tmp_path, "arrow").options)
    keyed = {"producer.key.columns": "id"}
    with monkeypatch.context() as older:
        older.setattr(keys, "ARROW_FUNCTIONS", False)
        with pytest.raises(Unsupported, match=r"Kafka's hash .* since 4\.1") as caught:
            save(rows, {**made(tmp_path / "k").options, **keyed})
    assert 'format("streamfactory")' in str(caught.value.remedy)
    one = {**keyed, "stream.file.partitions": "1"}
    assert save(rows, {**made(tmp_path / "k").options, **one})
    messages = made(tmp_path / "m", **{"stream.file.decoder.class.name": "json"})
    with pytest.raises(Unsupported, match="undecoded messages"):
        save(rows, messages.options)
    many = made(tmp_path / "p", **{"stream.file.partitions": "65"})
    with pytest.raises(Unsupported, match="65 partitions"):
        save(rows.selectExpr("id", "0 as _partition"), many.options)
    zoned = made(tmp_path / "z")
    zoned.put(pa.table({"at": pa.array([1], pa.timestamp("ns", "UTC"))}))
    with pytest.raises(SchemaMismatch, match="'at' of the type"):
        save(spark.sql("select now() as at"), zoned.options)
    with pytest.raises(ConfigError, match="belong together"):
        save(rows, made(tmp_path / "e").options, epoch=1)
    remote = {**made(tmp_path).options, "stream.file.storage.anonymous": "true"}
    del remote["stream.file.fsync"]
    for url, missing in {"s3": "org.apache.hadoop:hadoop-aws", "az": ""}.items():
        with pytest.raises(Unsupported, match=f"{url}a?://") as caught:
            save(rows, {**remote, "stream.file.path": f"{url}://bucket/streams"})
        assert missing in str(caught.value.remedy)
    memory = {"streamType": "memory", "stream.memory.topic.name": "m"}
    with pytest.raises(Unsupported, match="not stored in Parquet files"):
        save(rows, memory)


@ROUTED
@pytest.mark.parametrize(
    ("columns", "message"),
    [("more", "not among the rows"), ("list", "cannot be a key")],
)
def test_columns_that_cannot_be_keys_are_refused(
    spark: SparkSession, tmp_path: Path, columns: str, message: str
) -> None:
    frame = spark.range(1).selectExpr("id", "array(id) as list")
    invalid = {"producer.key.columns": columns}
    with pytest.raises(SchemaMismatch, match=message):
        save(frame, {**made(tmp_path).options, **invalid})
