"""Where a group member starts to read its partitions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from streamfactory.backends.kafka.committed import (
    begun_partitions,
    committed_incarnation,
)
from streamfactory.backends.kafka.errors import retried
from streamfactory.backends.kafka.group_settings import first_start
from streamfactory.spi import IncarnationChanged, Partition, PartitionInfo, Position

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confluent_kafka import Consumer

    from streamfactory.backends.kafka.metadata import KafkaMetadata
    from streamfactory.spi import StreamConfig


@dataclass(frozen=True, slots=True)
class PlannedStarts:
    """Starts of newly assigned partitions."""

    offsets: dict[Partition, int] = field(default_factory=dict)
    incarnations: dict[Partition, str] = field(default_factory=dict)
    places: list[TopicPartition] = field(default_factory=list)
    """To be assigned."""
    passed: set[Partition] = field(default_factory=set)
    """Partitions without a commit that start at their latest offset."""
    begun: dict[Partition, int] = field(default_factory=dict)
    """With how many partitions of its topic the group began, to be committed."""
    recreated: dict[Partition, IncarnationChanged] = field(default_factory=dict)
    """Partitions whose committed offset is of a topic that was deleted. They are
    assigned at their latest offset, until the framework decides."""

    @property
    def position(self) -> Position:
        """Offsets and incarnations."""
        return Position(self.offsets, self.incarnations)


class StartPlanner:
    """Finds the starts of newly assigned partitions.

    Args:
        config: The stream's configuration.
        metadata: Of the stream.

    Raises:
        ConfigError: config; the options name a start that groups do not support.
    """

    def __init__(self, config: StreamConfig, metadata: KafkaMetadata) -> None:
        self._earliest = first_start(config) == OFFSET_BEGINNING
        self._metadata = metadata
        self._timeout = config["connection.timeout.millis"] / 1000

    def plan(self, client: Consumer, partitions: Sequence[Partition]) -> PlannedStarts:
        """At the committed offsets, else at the start of the options.

        Raises:
            KafkaException: The committed offsets cannot be read.
            StreamError: The bounds cannot be read.
        """
        infos = {i.partition: i for i in self._metadata.fetch_bounds(partitions)}
        places = [TopicPartition(p.topic, p.id) for p in partitions]
        found = self._committed(client, places)
        fresh = {place.topic for place in found if place.offset < 0}
        begun = {topic: self._begun(client, topic) for topic in fresh}
        planned = PlannedStarts()
        for place in found:
            partition = Partition(place.topic, place.partition)
            info = infos.get(partition)
            if info is None:  # it was deleted meanwhile: the client reports it
                planned.places.append(place)
                continue
            count = begun_partitions(place)
            if place.offset < 0 and not self._earliest:
                count = begun[place.topic]
            if count:
                planned.begun[partition] = count
            _plan(planned, place, info)
        return planned

    def _begun(self, client: Consumer, topic: str) -> int:
        """With how many partitions of a topic the group began; others were added.

        Members that join together plan at different times: commits of the first one
        have this number. 0 if there are only commits without it.
        """
        count = self._metadata.fetch_partition_count(topic)
        places = [TopicPartition(topic, number) for number in range(count)]
        committed = [one for one in self._committed(client, places) if one.offset >= 0]
        return min((begun_partitions(one) or 0 for one in committed), default=count)

    def _committed(
        self, client: Consumer, places: list[TopicPartition]
    ) -> list[TopicPartition]:
        return retried(
            lambda: client.committed(places, timeout=self._timeout), self._timeout
        )


def _plan(planned: PlannedStarts, place: TopicPartition, info: PartitionInfo) -> None:
    """Add the start of one partition."""
    partition, latest = info.partition, info.latest or 0
    current, expected = info.incarnation or "", committed_incarnation(place)
    planned.incarnations[partition] = current
    if place.offset >= 0 and expected is not None and expected != current:
        planned.recreated[partition] = IncarnationChanged(
            f"topic {partition.topic!r} was recreated after the last commit: expected "
            f"id {expected!r}, found {current!r}",
            expected=expected,
            found=current,
            partition=partition,
            offset=place.offset,
        )
        # A commit refuses it, as long as it is not decided.
        planned.incarnations[partition] = expected
        at, start = place.offset, latest
    elif place.offset >= 0:
        at, start = place.offset, place.offset
    elif partition.id >= planned.begun.get(partition, 0):
        # Not as a number: retention may delete that offset before it is fetched.
        at, start = info.earliest, OFFSET_BEGINNING
    else:
        at, start = latest, latest
        planned.passed.add(partition)
    planned.offsets[partition] = at
    planned.places.append(TopicPartition(partition.topic, partition.id, start))
