"""Members of a consumer group: Kafka balances, and only `commit` saves."""

from __future__ import annotations

import time
import uuid
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaException,
)
from tests.kafka.conftest import stream_of
from tests.kafka.paths import BEFORE_READING

import streamfactory
from streamfactory.spi import (
    ConfigError,
    OffsetOutOfRange,
    Partition,
    StreamError,
    Unsupported,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from tests.kafka.topics import Topics

    from streamfactory.wiring.streams.stream import Stream

pytestmark = pytest.mark.usefixtures("each_path")

PATIENCE = 120.0
PROTOCOL = "stream.kafka.consumer.prop.group.protocol"


class Group:
    """Opens members of one group; a fixture."""

    def __init__(self, topics: Topics, folder: Path, stack: ExitStack) -> None:
        self.name = f"group-{uuid.uuid4().hex[:8]}"
        self._topics = topics
        self._folder = folder
        self._stack = stack

    def member(self, topic: str, more: Mapping[str, str] | None = None) -> Stream:
        options = {
            "stream.kafka.consumer.type": "highlevel",
            "group.id": self.name,
            "checkpoint.location": str(self._folder),
            "startingOffsets": "earliest",
        }
        if (more or {}).get(PROTOCOL) != "consumer":
            # So that members hear soon of those that come and go.
            options["stream.kafka.consumer.prop.heartbeat.interval.ms"] = "200"
        base = stream_of(self._topics.bootstrap, topic)
        properties = {**base, **options, **(more or {})}
        return self._stack.enter_context(streamfactory.open(properties))

    def members(self) -> int | None:
        """How many members the group has; None while it is rebalanced."""
        asked = self._topics.admin.describe_consumer_groups([self.name])[self.name]
        try:
            found = asked.result(60)
        except KafkaException:  # nobody has joined yet
            return None
        stable = found.state is ConsumerGroupState.STABLE
        return len(found.members) if stable else None

    def committed(self) -> dict[int, int]:
        """What the broker has for the group, by partition."""
        asked = [ConsumerGroupTopicPartitions(self.name)]
        found = self._topics.admin.list_consumer_group_offsets(asked)[self.name]
        places = found.result(60).topic_partitions
        return {place.partition: place.offset for place in places}


@pytest.fixture
def group(topics: Topics, tmp_path: Path) -> Any:
    with ExitStack() as stack:
        yield Group(topics, tmp_path, stack)


Row = tuple[int, int]


def take(members: Iterable[Stream], rows: int, seconds: float = PATIENCE) -> list[Row]:
    """Partition and offset of the next rows, of whichever member has them."""
    found: list[Row] = []
    deadline = time.monotonic() + seconds
    while len(found) < rows and time.monotonic() < deadline:
        for member in members:
            batch = member.next_batch(0.2)
            if batch is not None:
                number = batch.partition.id
                offsets = batch.rows.column("offset").to_pylist()
                found += [(number, offset) for offset in offsets]
    return found


def share(members: list[Stream], wanted: int) -> list[Row]:
    """Read until each member has a row of some partition; answers all rows."""
    found: list[Row] = []
    seen = [0] * len(members)
    deadline = time.monotonic() + PATIENCE
    while (not all(seen) or sum(seen) < wanted) and time.monotonic() < deadline:
        for index, member in enumerate(members):
            rows = take([member], 1, 0.3)
            seen[index] += len(rows)
            found += rows
    assert all(seen)
    return found


def fill(topics: Topics, topic: str, partitions: int, messages: int) -> list[Row]:
    for number in range(partitions):
        topics.send(topic, [b"v"] * messages, partition=number)
    return [(number, at) for number in range(partitions) for at in range(messages)]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_share_partitions_and_a_restart_resumes_at_the_commit(
    protocol: str, topics: Topics, group: Group
) -> None:
    topic = topics.create(partitions=4)
    wanted = fill(topics, topic, 4, 10)
    more = {PROTOCOL: protocol}
    first = group.member(topic, more)
    assert sorted(take([first], 40)) == wanted
    assert group.committed() == {}
    first.commit()
    assert group.committed() == dict.fromkeys(range(4), 10)
    fill(topics, topic, 4, 5)
    later = sorted(take([first], 20))
    assert later == [(n, at) for n in range(4) for at in range(10, 15)]
    first.close()
    second, third = group.member(topic, more), group.member(topic, more)
    # What came after the commit comes again, and nothing before it.
    again = share([second, third], 20)
    assert sorted(set(again)) == later


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_that_joins_takes_over_without_loss(
    protocol: str, topics: Topics, group: Group
) -> None:
    topic = topics.create(partitions=4)
    early = fill(topics, topic, 4, 10)
    more = {PROTOCOL: protocol}
    first = group.member(topic, more)
    assert sorted(take([first], 40)) == early
    first.commit()
    second = group.member(topic, more)
    deadline = time.monotonic() + PATIENCE
    while len(first.position) != 2 and time.monotonic() < deadline:
        take([first, second], 1, 0.2)
    assert len(first.position) == 2
    fill(topics, topic, 4, 10)
    later = [(n, at) for n in range(4) for at in range(10, 20)]
    found = share([first, second], 40)
    # Nobody committed in between, so nothing before the commit comes again.
    assert sorted(found) == later


def test_a_commit_leaves_out_what_was_taken(topics: Topics, group: Group) -> None:
    topic = topics.create(partitions=2)
    fill(topics, topic, 2, 3)
    first = group.member(topic)
    take([first], 6)
    second = group.member(topic)
    deadline = time.monotonic() + PATIENCE
    while len(first.position) != 1 and time.monotonic() < deadline:
        take([first, second], 1, 0.2)
    [mine] = first.position
    first.commit()
    assert group.committed() == {mine.id: 3}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_without_partitions_leaves_when_it_is_closed(
    protocol: str, topics: Topics, group: Group
) -> None:
    """Otherwise a rebalance, and commits meanwhile, wait for its session timeout."""
    topic = topics.create(partitions=1)
    fill(topics, topic, 1, 3)
    more = {PROTOCOL: protocol}
    first, second = (group.member(topic, more) for _ in range(2))
    found: list[Row] = []
    deadline = time.monotonic() + PATIENCE
    while (group.members() != 2 or not found) and time.monotonic() < deadline:
        found += take([first, second], 1, 0.2)
    idle = second if first.position else first
    assert not idle.position
    idle.close()
    before = time.monotonic()
    while group.members() != 1 and time.monotonic() < before + PATIENCE:
        take([first if idle is second else second], 1, 0.2)
    # A session times out after 45 s.
    assert time.monotonic() - before < 30


def test_partitions_that_come_later_are_read_from_their_earliest(
    topics: Topics, group: Group
) -> None:
    topic = topics.create()
    refresh = {
        "stream.kafka.consumer.prop.topic.metadata.refresh.interval.ms": "500",
        "startingOffsets": "latest",
    }
    member = group.member(topic, refresh)
    deadline = time.monotonic() + PATIENCE
    rows: list[Row] = []
    while not rows and time.monotonic() < deadline:
        topics.send(topic, [b"v"])
        rows = take([member], 1, 1.0)
    assert rows
    member.commit()
    topics.grow(topic, 2)
    topics.send(topic, [b"first"] * 3, partition=1)
    assert [row for row in take([member], 3) if row[0] == 1] == [
        (1, 0),
        (1, 1),
        (1, 2),
    ]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_what_came_after_a_member_that_committed_nothing_is_not_passed(
    topics: Topics, group: Group, protocol: str
) -> None:
    topic = topics.create()
    topics.send(topic, [b"passed"] * 3)
    options = {"startingOffsets": "latest", PROTOCOL: protocol}
    with group.member(topic, options) as first:
        read_until(first, lambda: group.committed() == {0: 3})  # where it has started
    topics.send(topic, [b"v"] * 2)
    with group.member(topic, options) as second:
        assert take([second], 2) == [(0, 3), (0, 4)]


@pytest.mark.parametrize("commits", [False, True])
def test_members_that_join_together_pass_the_same_history(
    topics: Topics, group: Group, *, commits: bool
) -> None:
    topic = topics.create(partitions=2)
    fill(topics, topic, 2, 3)
    latest = {"startingOffsets": "latest"}
    with group.member(topic, latest) as alone:
        read_until(alone, lambda: len(group.committed()) == 2)
        if commits:
            alone.commit()
    # Another group, of which one member was assigned partition 0, and the other one
    # polls later.
    asked = [ConsumerGroupTopicPartitions(group.name)]
    places = topics.admin.list_consumer_group_offsets(asked)[group.name].result(60)
    [first] = [one for one in places.topic_partitions if one.partition == 0]
    group.name += "-together"
    wanted = [ConsumerGroupTopicPartitions(group.name, [first])]
    topics.admin.alter_consumer_group_offsets(wanted)[group.name].result(60)
    with group.member(topic, latest) as later:
        read_until(later, lambda: group.committed() == {0: 3, 1: 3})
    # A partition that is added is read from its beginning.
    topics.grow(topic, 3)
    fill(topics, topic, 3, 2)
    with group.member(topic, latest) as last:
        assert sorted(take([last], 6)) == [
            (0, 3),
            (0, 4),
            (1, 3),
            (1, 4),
            (2, 0),
            (2, 1),
        ]


def read_until(member: Stream, done: Callable[[], bool]) -> None:
    """Poll a member that has nothing to read until something has happened."""
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline
        assert member.next_batch(0.2) is None


def test_a_checkpoint_goes_beyond_markers_of_transactions(
    topics: Topics, topic: str, group: Group
) -> None:
    topics.send_in_transaction(topic, [b"v"] * 5)
    member = group.member(topic)
    take([member], 5)
    deadline = time.monotonic() + PATIENCE
    while member.position[Partition(topic, 0)] < 6 and time.monotonic() < deadline:
        member.next_batch(0.2)
    member.commit()
    assert group.committed() == {0: 6}


def test_a_checkpoint_that_retention_overtook_is_a_loss(
    topics: Topics, topic: str, group: Group
) -> None:
    fill(topics, topic, 1, 10)
    member = group.member(topic)
    take([member], 10)
    member.commit()
    member.close()
    fill(topics, topic, 1, 10)
    topics.truncate(topic, 0, 15)
    strict = group.member(topic)
    with pytest.raises(OffsetOutOfRange) as caught:
        take([strict], 1)
    assert (caught.value.earliest, caught.value.offset) == (15, 10)
    strict.close()
    lenient = group.member(topic, {"out.of.range": "earliest"})
    assert take([lenient], 5) == [(0, at) for at in range(15, 20)]
    [loss] = lenient.counters.losses
    assert (loss.start, loss.end, loss.cause) == (10, 15, "retention")


@BEFORE_READING
def test_starts_that_a_group_cannot_have_are_refused(
    topics: Topics, topic: str, group: Group
) -> None:
    with pytest.raises(ConfigError) as caught:
        group.member(topic, {"startingOffsets": f'{{"{topic}": {{"0": 1}}}}'})
    assert "a consumer group cannot start at" in str(caught.value)


@BEFORE_READING
def test_single_partitions_are_not_for_groups(
    topics: Topics, topic: str, group: Group
) -> None:
    properties = stream_of(topics.bootstrap, topic)
    del properties["stream.kafka.topic.name"]
    with pytest.raises((Unsupported, ConfigError)) as caught:
        streamfactory.open(
            properties
            | {
                "stream.kafka.consumer.type": "highlevel",
                "group.id": group.name,
                "checkpoint.location": "unused",
                "assign": f'{{"{topic}": [0]}}',
            }
        )
    assert isinstance(caught.value, StreamError)
    assert "assign" in str(caught.value)
