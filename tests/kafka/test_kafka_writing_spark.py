"""Spark writes to Kafka: batches and epochs, each once, across drivers that die."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.kafka.conftest import stream_of
from tests.kafka.proving import read_committed
from tests.kafka.spark_driver import copy, sink, source
from tests.kafka.spark_proving import hunt
from tests.kafka.test_kafka_writing import values
from tests.proving.drivers import forget_commit
from tests.spark.queries import EPOCH

from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.kafka.broker import Addresses
    from tests.kafka.topics import Topics


def fill(folder: Path, epochs: int) -> list[int]:
    """Write numbers into the topic that is read."""
    with open_sink(source(folder)) as target:
        for epoch in range(epochs):
            numbers = pa.arange(epoch * EPOCH, (epoch + 1) * EPOCH)
            target.put(pa.table({"id": numbers}), writer_id="test", epoch=epoch)
    return list(range(epochs * EPOCH))


def found(kafka: Addresses, topic: str, partitions: int) -> list[int]:
    lists = read_committed(kafka.bootstrap, topic, partitions).values()
    return sorted(number for numbers in lists for number in numbers)


def test_a_batch_with_a_writer_and_an_epoch_is_written_once(
    spark: SparkSession, kafka: Addresses, topic: str
) -> None:
    frame = spark.range(0, 50, 1, 2).selectExpr(
        "cast(cast(id as string) as binary) as value"
    )
    options = stream_of(kafka.bootstrap, topic) | {"writer.id": "w", "epoch": "0"}
    for _ in range(2):
        frame.write.format("streamfactory").options(**options).mode("append").save()
    assert found(kafka, topic, 1) == list(range(50))


def test_a_batch_that_would_replace_is_refused(
    spark: SparkSession, kafka: Addresses, topic: str
) -> None:
    frame = spark.range(1).selectExpr("cast(cast(id as string) as binary) as value")
    writer = frame.write.format("streamfactory").mode("overwrite")
    with pytest.raises(Exception, match="kafka cannot replace at once"):
        writer.options(**stream_of(kafka.bootstrap, topic)).save()


def test_a_time_that_the_client_would_replace_fails_the_batch(
    spark: SparkSession, kafka: Addresses, topic: str
) -> None:
    frame = spark.range(3).selectExpr(
        "cast(cast(id as string) as binary) as value",
        "timestamp_millis(id - 1) as _timestamp",
    )
    writer = frame.write.format("streamfactory").mode("append")
    with pytest.raises(Exception, match="which the Kafka client replaces"):
        writer.options(**stream_of(kafka.bootstrap, topic)).save()
    assert values(kafka, topic) == []


def test_a_large_task_without_a_staging_location_is_reported_what_to_set(
    spark: SparkSession, kafka: Addresses, topic: str
) -> None:
    frame = spark.range(0, 2000, 1, 1).selectExpr(
        "cast(repeat('x', 1000) as binary) as value"
    )
    writer = frame.write.format("streamfactory").mode("append")
    with pytest.raises(Exception, match=r"set stream\.kafka\.staging\.location"):
        writer.options(**stream_of(kafka.bootstrap, topic)).save()
    assert values(kafka, topic) == []


@pytest.mark.long("several queries")
def test_an_epoch_that_spark_forgot_is_not_written_again(
    spark: SparkSession, kafka: Addresses, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create(partitions=2)
    numbers = fill(tmp_path, 3)
    copy(spark, tmp_path, kafka.bootstrap, topic)
    for _ in range(2):
        assert forget_commit(tmp_path / "checkpoint")
        copy(spark, tmp_path, kafka.bootstrap, topic)
    assert found(kafka, topic, 2) == numbers
    left = [*Path(sink(tmp_path, "", "")["stream.kafka.staging.location"]).glob("*/*")]
    assert left == []


@pytest.mark.long("three drivers of Spark are killed")
@pytest.mark.usefixtures("own_spark")
def test_rows_survive_tasks_and_drivers_that_are_killed(
    kafka: Addresses, tmp_path: Path
) -> None:
    verdict = hunt(3, 4, tmp_path, kafka.bootstrap)
    assert verdict.good, str(verdict)
    assert verdict.kills >= 3
