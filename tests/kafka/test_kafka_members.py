"""What a member of a group has fetched when its partitions or its position change."""

from __future__ import annotations

import time
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.kafka.conftest import stream_of
from tests.kafka.streams import opened

from streamfactory.backends.kafka.groups import KafkaGroupMember
from streamfactory.backends.kafka.native_groups import MemberQueue
from streamfactory.spi import (
    ConfigError,
    CorruptData,
    FetchLimits,
    Partition,
    Position,
    StreamError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from tests.kafka.topics import Topics

PATIENCE = 120.0
FETCHED = 5000
"""Messages of 100 bytes that a broker returns at once: what is read before is a part."""
FEW = FetchLimits(10, 2**23, 0.5)
MANY = FetchLimits(65_536, 2**23, 0.5)
QUICK = {"heartbeat.interval.ms": "200"}


class Opener:
    """Opens members of one group."""

    def __init__(self, topics: Topics) -> None:
        self.group = f"group-{uuid.uuid4().hex[:8]}"
        self._topics = topics

    @contextmanager
    def __call__(self, topic: str, **options: str) -> Iterator[KafkaGroupMember]:
        given = {f"stream.kafka.consumer.prop.{k}": v for k, v in options.items()}
        properties = stream_of(self._topics.bootstrap, topic) | given
        with opened(properties, startingOffsets="earliest") as source:
            member = KafkaGroupMember(source.config, "test", self.group)
            try:
                yield member
            finally:
                member.close()


@pytest.fixture
def member_of(topics: Topics) -> Opener:
    return Opener(topics)


Row = tuple[int, int]


def step(member: KafkaGroupMember, limits: FetchLimits = MANY) -> list[Row]:
    """Partition and offset of the next rows, if there are any."""
    found = member.fetch_messages(limits)
    if found is None or found[1].rows is None:
        return []
    offsets = found[1].rows.column("offset").to_pylist()
    return [(found[0].id, offset) for offset in offsets]


def rows_of(member: KafkaGroupMember, wanted: int, limits: FetchLimits = MANY) -> list[Row]:
    """The next rows, until there are enough."""
    found: list[Row] = []
    deadline = time.monotonic() + PATIENCE
    while len(found) < wanted and time.monotonic() < deadline:
        found += step(member, limits)
    return found


def rows_to(member: KafkaGroupMember, last: Row) -> list[Row]:
    """The next rows, up to a batch with a certain one."""
    found: list[Row] = []
    deadline = time.monotonic() + PATIENCE
    while last not in found and time.monotonic() < deadline:
        found += step(member)
    return found


def filled(topics: Topics, partitions: int = 1, messages: int = FETCHED) -> str:
    topic = topics.create(partitions=partitions)
    for number in range(partitions):
        topics.send(topic, [b"v" * 100] * messages, partition=number)
    return topic


def until(done: Any, *members: KafkaGroupMember) -> list[list[Row]]:
    """What members read until something has changed."""
    found: list[list[Row]] = [[] for _ in members]
    deadline = time.monotonic() + PATIENCE
    while not done() and time.monotonic() < deadline:
        for rows, member in zip(found, members, strict=True):
            rows += step(member, FetchLimits(10, 2**23, 0.1))
    assert done()
    return found


def of(partition: Partition, rows: list[Row]) -> list[Row]:
    """The rows of one partition."""
    return [row for row in rows if row[0] == partition.id]


def follows(rows: list[Row], start: int) -> bool:
    """Whether rows of one partition have all offsets from a start on."""
    return [offset for _, offset in rows] == list(range(start, start + len(rows)))


def check_seeks(topics: Topics, member: KafkaGroupMember) -> None:
    [(_, first), *_] = rows_of(member, 1, FEW)
    assert first == 0
    partition = next(iter(member.assignment()))
    for places in ([2], [4000], [9, 100, 17], [FETCHED - 1, 0]):
        for place in places:
            member.seek(partition, place)
        found = rows_of(member, min(20, FETCHED - places[-1]), FEW)
        assert follows(found, places[-1]), (places, found[:3])
    assert follows(rows_of(member, FETCHED - 20), 20)


@pytest.mark.usefixtures("each_path")
def test_what_was_fetched_before_a_seek_is_not_delivered(
    topics: Topics, member_of: Opener
) -> None:
    topic = filled(topics)
    with member_of(topic) as member:
        check_seeks(topics, member)


@pytest.mark.usefixtures("each_path")
@pytest.mark.parametrize("way", ["cooperative-sticky", "range", "consumer"])
def test_what_was_fetched_before_a_revocation_is_not_delivered(
    way: str, topics: Topics, member_of: Opener
) -> None:
    topic = filled(topics, partitions=2)
    options = {"partition.assignment.strategy": way, **QUICK}
    if way == "consumer":
        options = {"group.protocol": way}
    with member_of(topic, **options) as first:
        before = until(lambda: len(first.assignment()) == 2, first)[0]
        before += rows_of(first, 40, FEW)
        with member_of(topic, **options) as second:
            mine, theirs = until(
                lambda: len(first.assignment()) == len(second.assignment()) == 1,
                first,
                second,
            )
            [kept], [given] = first.assignment(), second.assignment()
            assert kept != given
            mine += rows_of(first, 200, FEW)
            theirs += rows_of(second, 200, FEW)
        # Nothing was committed: the new owner reads from the start.
        assert follows(of(given, theirs), 0)
        if way != "range":  # which takes all partitions from all members
            assert follows(of(kept, before + mine), 0)
        again = until(lambda: len(first.assignment()) == 2, first)[0]
        again += rows_to(first, (given.id, FETCHED - 1))
        # Nor is anything of its first assignment among these.
        assert follows(of(given, again), 0)
