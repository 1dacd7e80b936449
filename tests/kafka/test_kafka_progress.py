"""Spark's options as Spark-Kafka spells them, and a group that receives positions."""

from __future__ import annotations

import threading
from contextlib import closing
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.kafka.conftest import stream_of

from streamfactory.spark.failures import StreamFactoryError
from streamfactory.spark.pipelines.outcomes import Batch, Outcome, Read
from streamfactory.spark.pipelines.running import _Run
from streamfactory.spark.source import StreamFactorySource
from streamfactory.transfer.copies import open_copy
from streamfactory.wiring.config.configure import configure, inspect
from streamfactory.wiring.config.definition import from_mapping
from streamfactory.wiring.config.loading import load
from streamfactory.wiring.controls.control import Control
from streamfactory.wiring.plugins.manager import default_manager
from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession
    from tests.kafka.topics import Topics


def read_one_batch(options: dict[str, str]) -> None:
    """What Spark does for a batch, but for the rows."""
    source = StreamFactorySource({**options, "startingOffsets": "earliest"})
    reader: Any = source.streamReader(source.schema())
    try:
        end = reader.latestOffset(reader.initialOffset())
        reader.commit(end)
    finally:
        reader.stop()


def committed(topics: Topics, name: str, partitions: int) -> list[int]:
    """What Kafka's own client finds in the group of a topic."""
    settings = {"bootstrap.servers": topics.bootstrap, "group.id": f"lag-{name}"}
    with closing(Consumer(settings)) as consumer:
        asked = [TopicPartition(name, number) for number in range(partitions)]
        committed_offsets = consumer.committed(asked, timeout=20)
    return [one.offset for one in committed_offsets]


def with_group(topics: Topics, name: str) -> dict[str, str]:
    return {**stream_of(topics.bootstrap, name), "progress.group": f"lag-{name}"}


def test_a_group_is_reported_of_the_position_of_each_batch(topics: Topics) -> None:
    name = topics.create(partitions=2)
    topics.send(name, [b"a", b"b"], partition=0)
    read_one_batch(with_group(topics, name))
    assert committed(topics, name, 2) == [2, 0]


def test_a_group_is_reported_of_a_batch_that_no_other_follows(topics: Topics) -> None:
    name = topics.create(partitions=2)
    topics.send(name, [b"a", b"b"], partition=0)
    options = {**with_group(topics, name), "startingOffsets": "earliest"}
    source = StreamFactorySource(options)
    reader: Any = source.streamReader(source.schema())
    try:
        end = reader.latestOffset(reader.initialOffset())
        # What Spark does after its last batch: it asks for another, never commits.
        assert reader.latestOffset(end) == end
    finally:
        reader.stop()
    assert committed(topics, name, 2) == [2, 0]


def test_the_last_batch_of_an_available_now_query_is_reported(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    name = topics.create(partitions=2)
    topics.send(name, [b"a", b"b"], partition=0)
    topics.send(name, [b"c"], partition=1)
    rows = spark.readStream.format("streamfactory").options(
        **with_group(topics, name), startingOffsets="earliest"
    )
    query = (
        rows.load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(400)
    assert committed(topics, name, 2) == [2, 1]


def test_a_copy_reports_its_end_to_the_group(topics: Topics, tmp_path: Path) -> None:
    name = topics.create(partitions=2)
    topics.send(name, [b"a", b"b"], partition=0)
    sink = {
        "streamType": "file",
        "stream.file.path": str(tmp_path),
        "stream.file.decoder.class.name": "raw",
    }
    for sent in (1, 2):
        topics.send(name, [b"c"], partition=1)
        with open_copy(with_group(topics, name), sink) as copy:
            assert copy.run(threading.Event()).complete
        assert committed(topics, name, 2) == [2, sent]


def test_a_type_without_groups_refuses_one(tmp_path: Path) -> None:
    options = {
        "streamType": "file",
        "stream.file.path": str(tmp_path),
        "stream.file.topic.name": "t",
        "schema": "id bigint",
        "progress.group": "g",
    }
    with open_sink(options) as sink:
        sink.put(pa.RecordBatch.from_pydict({"id": [1]}))
    with pytest.raises(StreamFactoryError) as caught:
        read_one_batch(options)
    assert "[unsupported] this stream has no groups" in str(caught.value)


def test_options_may_be_spelled_as_spark_kafka_does() -> None:
    options = {
        "streamType": "kafka",
        "kafka.bootstrap.servers": "localhost:9092",
        "kafka.isolation.level": "read_uncommitted",
        "kafka.fetch.min.bytes": "7",
        "subscribe": "a,b",
        "stream.kafka.decoder.class.name": "raw",
    }
    config = configure(from_mapping(options), default_manager(), use="spark").config
    assert config["broker.list"] == "localhost:9092"
    assert config["isolation.level"] == "read_uncommitted"
    assert config.client_properties("consumer")["fetch.min.bytes"] == "7"


def test_what_is_ours_is_refused_in_that_spelling_too() -> None:
    options = {
        "streamType": "kafka",
        "kafka.bootstrap.servers": "localhost:9092",
        "kafka.auto.offset.reset": "latest",
        "stream.kafka.topic.name": "a",
        "stream.kafka.decoder.class.name": "raw",
    }
    found = inspect(from_mapping(options), default_manager(), use="spark").errors
    assert [(p.key, p.what) for p in found] == [
        ("kafka.auto.offset.reset", "is set by streamfactory itself")
    ]


def test_the_end_of_a_pipeline_is_reported_though_spark_asks_for_nothing_more(
    topics: Topics,
) -> None:
    name = topics.create(partitions=2)
    source = load(from_mapping(with_group(topics, name), "in"), "spark")
    outcome = Outcome("p", last=batch_at({name: {"0": 5, "1": 7}}))
    pipeline = SimpleNamespace(name="p")
    prepared: Any = SimpleNamespace(pipeline=pipeline, sources={"input": source})
    _Run(prepared, lambda _: None, outcome, Control("pipeline/p"))._publish_end()
    assert committed(topics, name, 2) == [5, 7]


def batch_at(offsets: dict[str, dict[str, int]]) -> Batch:
    """The report of a batch that ended there."""
    read = {"input": Read(12, offsets, {}, {})}
    return Batch("p", 0, 12, 1.0, 12.0, offsets, {}, None, 0, "", sources=read)
