"""Positions of Kafka's groups by `lag` and `offsets`, against a real broker."""

from __future__ import annotations

import json
import time
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    KafkaException,
    TopicPartition,
)
from tests.kafka.conftest import stream_of
from tests.proving.changes import change_at_once
from tests.proving.commands import command_of

import streamfactory
from streamfactory.wiring.config.configure import configure
from streamfactory.wiring.config.definition import StreamDefinition
from streamfactory.wiring.plugins.manager import default_manager
from streamfactory.wiring.reading.source import Source

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack
    from pathlib import Path

    from tests.kafka.broker import Addresses
    from tests.kafka.topics import Topics
    from tests.proving.commands import Outcome


@pytest.fixture
def program(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    return command_of(capsys)


def stream_file(folder: Path, properties: dict[str, str], name: str = "s") -> Path:
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"name": name, "properties": properties}))
    return path


def commit(topics: Topics, group: str, topic: str, *offsets: int) -> None:
    """Commit offsets of the partitions 0, 1, ... with the client itself."""
    places = [TopicPartition(topic, n, offset) for n, offset in enumerate(offsets)]
    wanted = [ConsumerGroupTopicPartitions(group, places)]
    deadline = time.monotonic() + 60
    while True:
        # The coordinator of a new broker loads first.
        with suppress(KafkaException):
            topics.admin.alter_consumer_group_offsets(wanted)[group].result(60)
            if committed(topics, group) == dict(enumerate(offsets)):
                return
        assert time.monotonic() < deadline
        time.sleep(0.1)


def committed(topics: Topics, group: str) -> dict[int, int]:
    asked = [ConsumerGroupTopicPartitions(group)]
    found = topics.admin.list_consumer_group_offsets(asked)[group].result(60)
    return {place.partition: place.offset for place in found.topic_partitions}


def test_groups_of_the_broker_are_shown_and_moved(
    program: Callable[..., Outcome], kafka: Addresses, topics: Topics, tmp_path: Path
) -> None:
    topic, group = topics.create(partitions=2), f"group-{uuid.uuid4().hex[:8]}"
    topics.send(topic, [b"a", b"b", b"c"], partition=0)
    topics.send(topic, [b"d"], partition=1)
    commit(topics, group, topic, 1, 1)
    stream = stream_file(tmp_path, stream_of(kafka.bootstrap, topic))
    found = program("lag", stream, "--json")
    assert (found.status, found.err) == (0, "")
    assert [(one["name"], one["behind"]) for one in found.json["lags"]] == [(group, 2)]
    done = program(
        *("offsets", "reset", stream, "--group", group, "--to", "0=latest"),
        *("--to", "1=earliest", "--yes"),
    )
    assert (done.status, done.err) == (0, "")
    assert committed(topics, group) == {0: 3, 1: 0}
    beyond = program("offsets", "set", stream, "--group", group, "0=9", "--yes")
    assert beyond.status == 1
    unknown = program("offsets", "show", stream, "--group", "nobody", "--json")
    assert (unknown.status, unknown.error["error"]) == (1, "position_refused")
    assert committed(topics, group) == {0: 3, 1: 0}


def test_of_two_changes_of_a_group_at_once_at_most_one_is_made(
    kafka: Addresses, topics: Topics
) -> None:
    topic, group = topics.create(partitions=2), f"group-{uuid.uuid4().hex[:8]}"
    for partition in range(2):
        topics.send(topic, [b"a"] * 9, partition=partition)
    properties = stream_of(kafka.bootstrap, topic)

    def source(stack: ExitStack) -> Source:
        definition = StreamDefinition.of(topic, properties)
        made = Source(configure(definition, default_manager(), use="read"))
        stack.callback(made.close)
        return made

    for n in range(3):
        commit(topics, group, topic, 9, 9)
        # Each moves another partition: at least one is refused all the same.
        outcomes = change_at_once(source, group, {0: n}, {1: n})
        assert outcomes.count(None) <= 1
        made = outcomes.index(None) if None in outcomes else None
        assert committed(topics, group) == {p: n if p == made else 9 for p in range(2)}


def test_a_group_with_members_is_not_moved(
    program: Callable[..., Outcome], kafka: Addresses, topics: Topics, tmp_path: Path
) -> None:
    topic, group = topics.create(), f"group-{uuid.uuid4().hex[:8]}"
    topics.send(topic, [b"a", b"b"], partition=0)
    properties = stream_of(kafka.bootstrap, topic) | {"startingOffsets": "earliest"}
    stream = stream_file(tmp_path, properties)
    grouped = {"stream.kafka.consumer.type": "highlevel", "group.id": group}
    with streamfactory.open(properties | grouped, follow=True) as member:
        assert next(iter(member)).num_rows
        member.commit()
        before = committed(topics, group)
        refused = program(
            "offsets", "reset", stream, "--group", group, "--to", "earliest", "--yes"
        )
        assert refused.status == 1
        assert f"offsets of group {group!r} cannot be committed" in refused.err
        assert committed(topics, group) == before


def test_a_broker_that_cannot_be_reached_hides_no_other_target(
    program: Callable[..., Outcome], kafka: Addresses, topics: Topics, tmp_path: Path
) -> None:
    topic, group = topics.create(), f"group-{uuid.uuid4().hex[:8]}"
    commit(topics, group, topic, 0)
    here = stream_file(tmp_path, stream_of(kafka.bootstrap, topic), "here")
    properties = stream_of("127.0.0.1:1", topic)
    properties["stream.kafka.connection.timeout.millis"] = "1500"
    away = stream_file(tmp_path, properties, "away")
    found = program("lag", away, here, "--json")
    assert found.status == 1
    assert [one["name"] for one in found.json["lags"]] == [group]
    (problem,) = found.json["problems"]
    assert (problem["target"], problem["class"]) == (str(away), "transient")
