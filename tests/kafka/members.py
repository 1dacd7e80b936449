"""Members of a group that are called directly, and what they read."""

from __future__ import annotations

import time
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tests.kafka.conftest import stream_of
from tests.kafka.streams import opened

from streamfactory.backends.kafka.groups import KafkaGroupMember
from streamfactory.spi import FetchLimits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.kafka.topics import Topics

    from streamfactory.spi import Partition

PATIENCE = 120.0
FETCHED = 5000
"""Messages of 100 bytes, which a broker returns at once: few of them are read first."""
FEW = FetchLimits(10, 2**23, 0.5)
MANY = FetchLimits(65_536, 2**23, 0.5)
QUICK = {"heartbeat.interval.ms": "200"}

Row = tuple[int, int]


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


def step(member: KafkaGroupMember, limits: FetchLimits = MANY) -> list[Row]:
    """Partition and offset of the next rows, if there are any."""
    found = member.fetch_messages(limits)
    if found is None or found[1].rows is None:
        return []
    assert found[0] in member.assignment()
    offsets = found[1].rows.column("offset").to_pylist()
    return [(found[0].id, offset) for offset in offsets]


def rows_of(
    member: KafkaGroupMember, wanted: int, limits: FetchLimits = MANY
) -> list[Row]:
    """The next rows, until there are enough."""
    found: list[Row] = []
    deadline = time.monotonic() + PATIENCE
    while len(found) < wanted and time.monotonic() < deadline:
        found += step(member, limits)
    assert len(found) >= wanted
    return found


def rows_to(member: KafkaGroupMember, last: set[Row]) -> list[Row]:
    """The next rows, until certain ones are among them."""
    found: list[Row] = []
    deadline = time.monotonic() + PATIENCE
    while not last <= set(found):
        assert time.monotonic() < deadline
        found += step(member)
    return found


def filled(
    topics: Topics, partitions: int = 1, messages: int = FETCHED, **settings: Any
) -> str:
    """A topic with messages in each partition."""
    topic = topics.create(partitions=partitions)
    fill(topics, topic, messages, partitions, **settings)
    return topic


def fill(
    topics: Topics, topic: str, messages: int, partitions: int, **settings: Any
) -> None:
    """Append messages to each partition."""
    for number in range(partitions):
        values = [b"v" * 100] * messages
        topics.send(topic, values, partition=number, settings=settings)


def until(done: Callable[[], bool], *members: KafkaGroupMember) -> list[list[Row]]:
    """What members read until something has changed."""
    found: list[list[Row]] = [[] for _ in members]
    deadline = time.monotonic() + PATIENCE
    while not done() and time.monotonic() < deadline:
        for rows, member in zip(found, members, strict=True):
            rows.extend(step(member, FetchLimits(10, 2**23, 0.1)))
    assert done()
    return found


def of(partition: Partition, rows: list[Row]) -> list[Row]:
    """The rows of one partition."""
    return [row for row in rows if row[0] == partition.id]


def follows(rows: list[Row], start: int) -> bool:
    """Whether rows of one partition have all offsets from a start on."""
    return [offset for _, offset in rows] == list(range(start, start + len(rows)))
