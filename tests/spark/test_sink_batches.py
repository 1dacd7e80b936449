"""Batches written from Spark: whole or not at all, and once where a writer is named."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from streamfactory.spi import OffsetOutOfRange
from streamfactory.wiring.streams.stream import open_stream

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from tests.proving.sessions import Topic


def save(frame: DataFrame, topic: Topic, mode: str = "append", **options: str) -> None:
    writer = frame.write.format("streamfactory").options(**topic.options)
    writer.options(**options).mode(mode).save()


def refused(call: Callable[[], object]) -> str:
    """What the user reads."""
    with pytest.raises(Exception) as caught:
        call()
    return str(caught.value)


def save_here(topic: Topic, rows: int, **options: str) -> None:
    """The same without Spark, where this process hears what workers would say."""
    from pyspark.sql.types import LongType, StructField, StructType

    from streamfactory.spark.source import StreamFactorySource

    schema = StructType([StructField("id", LongType())])
    writer = StreamFactorySource({**topic.options, **options}).writer(schema, False)
    batch = pa.record_batch({"id": pa.arange(0, rows)})
    writer.commit([writer.write(iter([batch]))])


def by_partition(topic: Topic, column: str) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = {}
    with open_stream(topic.options) as stream:
        for batch in stream:
            rows = batch.rows.column(column).to_pylist()
            found.setdefault(batch.partition.id, []).extend(rows)
    return {partition: sorted(found[partition]) for partition in sorted(found)}


def test_an_append_adds_and_an_overwrite_replaces(
    spark: SparkSession, topic: Topic
) -> None:
    save(spark.range(10), topic)
    save(spark.range(10, 15), topic)
    assert topic.column("id") == [*range(15)]
    save(spark.range(100, 103), topic, "overwrite")
    assert topic.column("id") == [100, 101, 102]


def test_a_reader_sees_the_old_rows_or_the_new_ones_at_every_moment(
    spark: SparkSession, topic: Topic
) -> None:
    save(spark.range(1000).selectExpr("0 as age"), topic, "overwrite")
    seen: set[tuple[int, int]] = set()
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            try:
                rows = topic.rows()
            except OffsetOutOfRange:
                continue  # replaced while it was read: an error, never mixed
            ages = {row["age"] for row in rows}
            seen.add((len(rows), len(ages)))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        for age in range(1, 6):
            frame = spark.range(1000, numPartitions=2)
            save(frame.selectExpr(f"{age} as age"), topic, "overwrite")
    finally:
        done.set()
        watcher.join(120)
    assert seen == {(1000, 1)}
    assert {row["age"] for row in topic.rows()} == {5}


def test_a_named_writer_writes_an_epoch_once(spark: SparkSession, topic: Topic) -> None:
    for _ in range(3):
        save(spark.range(10), topic, **{"writer.id": "nightly", "epoch": "20261121"})
    assert topic.column("id") == [*range(10)]
    save(spark.range(10, 12), topic, **{"writer.id": "nightly", "epoch": "20261122"})
    save(spark.range(10), topic, **{"writer.id": "hourly", "epoch": "0"})
    assert topic.column("id") == sorted([*range(12), *range(10)])


def test_an_epoch_with_other_content_keeps_the_first_or_fails_by_option(
    spark: SparkSession, topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    who = {"writer.id": "nightly", "epoch": "1"}
    save(spark.range(0, 10, 1, 2), topic, **who)
    save(spark.range(0, 11, 1, 3), topic, **who)
    said = "epoch 1 was repeated with 11 rows instead of 10; the first commit is kept"
    save_here(topic, 11, **who)
    assert said in caplog.text
    message = refused(
        lambda: save(spark.range(11), topic, **who, **{"epoch.mismatch": "fail"})
    )
    assert f"[epoch_mismatch] {said}" in message
    assert topic.column("id") == [*range(10)]


def test_an_epoch_older_than_the_last_is_refused(
    spark: SparkSession, topic: Topic
) -> None:
    save(spark.range(1), topic, **{"writer.id": "nightly", "epoch": "2"})
    message = refused(
        lambda: save(spark.range(1), topic, **{"writer.id": "nightly", "epoch": "1"})
    )
    assert (
        "[epoch_in_the_past] epoch 1 is older than the last committed one, 2" in message
    )


@pytest.mark.parametrize(
    ("given", "missing"), [("writer.id", "epoch"), ("epoch", "writer.id")]
)
def test_a_writer_and_its_epoch_belong_together(
    spark: SparkSession, topic: Topic, given: str, missing: str
) -> None:
    message = refused(lambda: save(spark.range(1), topic, **{given: "1"}))
    assert f"{given} and {missing} belong together: {missing} is missing" in message


def test_without_a_writer_a_batch_is_at_least_once_and_reports_it(
    spark: SparkSession, topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    durable = topic.another(**{"stream.file.fsync": "always"})
    save(spark.range(1), durable)
    why = "there is no writer id, so a repeated epoch cannot be recognised"
    save_here(durable, 1)
    assert f"this write is at-least-once: {why}" in caplog.text
    message = refused(lambda: save(spark.range(1), durable, guarantee="exactly-once"))
    assert (
        "[guarantee_refused] guarantee=exactly-once is required, but this sink has"
        in message
    )
    who = {"writer.id": "nightly", "epoch": "0"}
    save(spark.range(1), durable, guarantee="exactly-once", **who)
    assert durable.column("id") == [0, 0, 0]


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_an_empty_frame_makes_the_topic_with_its_schema(
    spark: SparkSession, topic: Topic, mode: str
) -> None:
    for empty in (
        spark.createDataFrame([], "id long, name string"),
        spark.sql("select 1L as id, 'x' as name").where("1 = 0"),
    ):
        other = topic.another()
        save(empty, other, mode)
        with open_stream(other.options) as stream:
            assert stream.schema.names == ["id", "name"]
        assert other.rows() == []


def test_an_empty_overwrite_leaves_nothing(spark: SparkSession, topic: Topic) -> None:
    save(spark.range(10), topic)
    save(spark.range(0), topic, "overwrite")
    assert topic.rows() == []


def test_rows_go_where_they_say_or_where_their_key_says_or_by_task(
    spark: SparkSession, topic: Topic
) -> None:
    save(spark.range(9).selectExpr("id", "cast(id % 3 as int) as _partition"), topic)
    three = {"stream.file.partitions": "3"}
    third = {partition: [*range(partition, 9, 3)] for partition in range(3)}
    assert by_partition(topic, "id") == third

    keyed = topic.another(**three)
    for _ in range(2):
        save(spark.range(300), keyed, **{"producer.key.columns": "id"})
    partitions = by_partition(keyed, "id")
    assert len(partitions) == 3
    # The same key, the same partition: each is there twice or not at all.
    assert all(rows[::2] == rows[1::2] for rows in partitions.values())

    as_key = topic.another(**three)
    save(spark.range(300).selectExpr("id", "bin(id) as _key"), as_key)
    named = topic.another(**three, **{"producer.key.columns": "name"})
    save(spark.range(300).selectExpr("id", "bin(id) as name"), named)
    assert by_partition(as_key, "id") == by_partition(named, "id")

    by_task = topic.another(**three)
    save(spark.range(30, numPartitions=3), by_task)
    assert sorted(map(len, by_partition(by_task, "id").values())) == [10, 10, 10]


def test_a_partition_that_is_not_there_is_refused(
    spark: SparkSession, topic: Topic
) -> None:
    message = refused(
        lambda: save(spark.sql("select 1L as id, 7 as _partition"), topic)
    )
    assert "column '_partition' has values 7 to 7" in message
    assert "use partitions 0 to 2" in message
    assert topic.rows() == []


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("'x' as id, 'n' as name", "column 'id' is string, declared bigint"),
        ("1L as id, 'n' as name, 2 as z", "column 'z' is not in the declared schema"),
        ("1L as id, array(1) as name", "column 'name' is array<"),
    ],
)
def test_rows_that_do_not_fit_are_refused_before_a_task_runs(
    spark: SparkSession, topic: Topic, row: str, message: str
) -> None:
    save(spark.sql("select 1L as id, 'n' as name"), topic)
    found = refused(lambda: save(spark.sql(f"select {row}"), topic))
    assert f"[schema_mismatch] {message}" in found
    assert "Failed to initialize Python data source writer" in found
    assert topic.rows() == [{"id": 1, "name": "n"}]


def test_narrower_numbers_and_missing_nullable_columns_fit(
    spark: SparkSession, topic: Topic
) -> None:
    save(spark.sql("select 1L as id, 'n' as name"), topic)
    save(spark.sql("select cast(2 as int) as id"), topic)
    assert topic.rows() == [{"id": 1, "name": "n"}, {"id": 2, "name": None}]


def test_a_batch_that_fails_leaves_nothing(spark: SparkSession, topic: Topic) -> None:
    save(spark.range(5), topic)

    def staged() -> list[Path]:
        return [*(topic.root / "topics").rglob("data/*.arrow")]

    kept = len(staged())
    bad = spark.range(10, numPartitions=2).selectExpr(
        "if(id = 9, cast(raise_error('spoilt') as bigint), id) as id"
    )
    assert "spoilt" in refused(lambda: save(bad, topic))
    assert "spoilt" in refused(lambda: save(bad, topic, "overwrite"))
    assert topic.column("id") == [*range(5)]
    # But for what the task that was killed with its job could not take back.
    assert len(staged()) <= kept + 2


@pytest.mark.parametrize("mode", ["errorifexists", "ignore"])
def test_spark_refuses_the_other_modes(
    spark: SparkSession, topic: Topic, mode: str
) -> None:
    message = refused(lambda: save(spark.range(1), topic, mode))
    assert 'Please use either the "Append" or "Overwrite" mode' in message


def test_a_stream_of_one_process_is_refused(spark: SparkSession) -> None:
    writer = spark.range(1).write.format("streamfactory").mode("append")
    of_memory = writer.options(
        **{"streamType": "memory", "stream.memory.topic.name": "t"}
    )
    message = refused(of_memory.save)
    assert "[unsupported] other processes do not see streams of type memory" in message
    assert "write to a stream of type file" in message


def test_a_reader_behind_an_overwrite_is_reported(
    spark: SparkSession, topic: Topic
) -> None:
    save(spark.range(10, numPartitions=1), topic)
    with open_stream(topic.options) as stream:
        position = stream.position
    save(spark.range(5, numPartitions=1), topic, "overwrite")
    with (
        open_stream(topic.options, start=position) as stream,
        pytest.raises(OffsetOutOfRange) as caught,
    ):
        stream.to_reader().read_all()
    assert "available are 10 to 15" in str(caught.value)
