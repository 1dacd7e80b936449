"""Spark's options as Spark-Kafka spells them, and a group that is told of positions."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.kafka.conftest import stream_of

from streamfactory.spark.failures import StreamFactoryError
from streamfactory.spark.source import StreamFactorySource
from streamfactory.wiring.configure import configure, inspect
from streamfactory.wiring.definition import from_mapping
from streamfactory.wiring.opening import open_sink
from streamfactory.wiring.plugins import default_manager

if TYPE_CHECKING:
    from pathlib import Path

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


def test_a_group_is_told_of_the_position_of_each_batch(topics: Topics) -> None:
    name = topics.create(partitions=2)
    topics.send(name, [b"a", b"b"], partition=0)
    options = {**stream_of(topics.bootstrap, name), "progress.group": f"lag-{name}"}
    read_one_batch(options)
    settings = {"bootstrap.servers": topics.bootstrap, "group.id": f"lag-{name}"}
    with closing(Consumer(settings)) as consumer:
        asked = [TopicPartition(name, 0), TopicPartition(name, 1)]
        told = consumer.committed(asked, timeout=120)
    assert [one.offset for one in told] == [2, 0]


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
