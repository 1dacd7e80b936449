"""A topic that is deleted and created again: no row of it continues the old one."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from tests.kafka.conftest import stream_of

import streamfactory
from streamfactory.spi import (
    DataLossError,
    IncarnationChanged,
    Partition,
    TopicNotFound,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.kafka.topics import Topics

    from streamfactory.wiring.streams.stream import Stream

pytestmark = pytest.mark.usefixtures("each_path")

OLD, NEW = 50, 75
PATIENCE = 60.0


def options(topics: Topics, topic: str, kind: str, **more: str) -> dict[str, str]:
    found = stream_of(topics.bootstrap, topic) | {"startingOffsets": "earliest"}
    if kind == "group":
        found |= {
            "stream.kafka.consumer.type": "highlevel",
            "group.id": f"group-{uuid.uuid4().hex[:8]}",
        }
    return found | {key.replace("__", "."): value for key, value in more.items()}


def read(stream: Stream, rows: int, seconds: float = PATIENCE) -> list[bytes]:
    found: list[bytes] = []
    deadline = time.monotonic() + seconds
    while len(found) < rows and time.monotonic() < deadline:
        batch = stream.next_batch(0.2)
        if batch is not None:
            found += batch.rows.column("value").to_pylist()
    return found


def outgrow(topics: Topics, topic: str) -> None:
    """Recreate a topic, with more rows than before."""
    topics.recreate(topic)
    topics.send(topic, [b"new"] * NEW)


@pytest.mark.parametrize("kind", ["follow", "group"])
def test_a_reader_of_a_recreated_topic_gets_none_of_its_rows(
    kind: str, topics: Topics
) -> None:
    topic = topics.create()
    topics.send(topic, [b"old"] * OLD)
    with streamfactory.open(options(topics, topic, kind), follow=True) as stream:
        assert read(stream, OLD) == [b"old"] * OLD
        outgrow(topics, topic)
        late: list[bytes] = []
        with pytest.raises((DataLossError, TopicNotFound)):
            late = read(stream, NEW)
        assert late == []


@pytest.mark.parametrize("kind", ["follow", "group"])
def test_a_reader_that_may_continue_gets_all_rows_of_a_recreated_topic(
    kind: str, topics: Topics
) -> None:
    topic = topics.create()
    topics.send(topic, [b"old"] * OLD)
    given = options(
        topics, topic, kind, out__of__range="earliest", metadata__refresh__millis="500"
    )
    with streamfactory.open(given, follow=True) as stream:
        assert read(stream, OLD) == [b"old"] * OLD
        outgrow(topics, topic)
        assert read(stream, NEW) == [b"new"] * NEW
        assert {loss.cause for loss in stream.counters.losses} <= {
            "incarnation",
            "vanished",
        }
        assert stream.counters.losses


def test_a_group_commits_no_offset_to_a_recreated_topic(topics: Topics) -> None:
    topic = topics.create()
    topics.send(topic, [b"old"] * OLD)
    given = options(topics, topic, "group")
    with streamfactory.open(given) as stream:
        assert read(stream, OLD) == [b"old"] * OLD
        outgrow(topics, topic)
        with pytest.raises(IncarnationChanged):
            stream.commit()
    with streamfactory.open(given) as stream:
        assert read(stream, NEW) == [b"new"] * NEW


def test_an_offset_that_was_committed_for_a_deleted_topic_is_not_continued(
    topics: Topics,
) -> None:
    """As if the topic was recreated between the last look-up and the commit."""
    topic = topics.create()
    topics.send(topic, [b"old"] * OLD)
    given = options(topics, topic, "group")
    with streamfactory.open(given) as stream:
        assert read(stream, OLD) == [b"old"] * OLD
        stream.commit()
        old = committed(topics, given)
    outgrow(topics, topic)
    wanted = ConsumerGroupTopicPartitions(given["group.id"], [old])
    for done in topics.admin.alter_consumer_group_offsets([wanted]).values():
        done.result(60)
    with streamfactory.open(given) as stream:
        for _ in range(2):
            with pytest.raises(IncarnationChanged, match="after the last commit"):
                read(stream, 1)
        with pytest.raises(IncarnationChanged):
            stream.commit()
    assert committed(topics, given).offset == OLD
    with streamfactory.open(given, options={"out.of.range": "earliest"}) as stream:
        assert read(stream, NEW) == [b"new"] * NEW
        assert [loss.start for loss in stream.counters.losses] == [OLD]


def committed(topics: Topics, given: Mapping[str, str]) -> TopicPartition:
    asked = [ConsumerGroupTopicPartitions(given["group.id"])]
    found: Any = topics.admin.list_consumer_group_offsets(asked)
    (place,) = found[given["group.id"]].result(60).topic_partitions
    return TopicPartition(place.topic, place.partition, place.offset, place.metadata)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_at_latest_that_read_nothing_commits_where_it_stood(
    protocol: str, topics: Topics
) -> None:
    topic = topics.create(partitions=2)
    topics.send(topic, [b"early"] * 3, partition=0)
    prop = {"stream.kafka.consumer.prop.group.protocol": protocol}
    given = options(topics, topic, "group", startingOffsets="latest") | prop
    with streamfactory.open(given) as stream:
        deadline = time.monotonic() + PATIENCE
        while len(stream.position) < 2 and time.monotonic() < deadline:
            assert stream.next_batch(0.2) is None
        assert dict(stream.commit()) == {Partition(topic, 0): 3, Partition(topic, 1): 0}
    topics.send(topic, [b"late"] * 2, partition=0)
    topics.send(topic, [b"late"], partition=1)
    with streamfactory.open(given) as stream:
        assert read(stream, 3) == [b"late"] * 3


def test_a_second_member_does_not_get_the_history_of_a_group_at_latest(
    topics: Topics,
) -> None:
    topic = topics.create(partitions=2)
    for number in range(2):
        topics.send(topic, [b"early"] * 3, partition=number)
    given = options(topics, topic, "group", startingOffsets="latest")
    # The first member finds out about a rebalance in the answer to a heartbeat.
    given["stream.kafka.consumer.prop.heartbeat.interval.ms"] = "200"
    with streamfactory.open(given) as first:
        deadline = time.monotonic() + PATIENCE
        while len(first.position) < 2 and time.monotonic() < deadline:
            first.next_batch(0.2)
        topics.send(topic, [b"late"], partition=0)
        assert read(first, 1) == [b"late"]
        first.commit()
        with streamfactory.open(given) as second:
            found: list[bytes] = []
            while len(second.position) < 1 and time.monotonic() < deadline:
                found += read(second, 1, 0.2) + read(first, 1, 0.2)
            found += read(second, 1, 1) + read(first, 1, 1)
            assert found == []


def test_a_copy_commits_no_row_of_a_recreated_topic(
    topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create()
    topics.send(topic, [b"old"] * OLD)
    source = options(topics, topic, "follow")
    sink = {
        "streamType": "file",
        "stream.file.path": str(tmp_path / "files"),
        "stream.file.topic.name": "f",
        "stream.file.decoder.class.name": "raw",
    }
    streamfactory.copy(source, sink, writer_id="w")
    outgrow(topics, topic)
    with pytest.raises(IncarnationChanged):
        streamfactory.copy(source, sink, writer_id="w")
    with streamfactory.open(sink) as stream:
        assert stream.to_reader().read_all()["value"].to_pylist() == [b"old"] * OLD
