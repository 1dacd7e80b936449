"""Committed offsets of groups.

A committed offset has the topic's id as its metadata, so that an offset of a topic that
was deleted is not continued in the one that replaced it. Where a group began at the
latest offset, it also has the number of partitions that the topic had then: those
beyond them were added later, and the others are begun by members of the same time.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from confluent_kafka import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamfactory.spi import Partition, Position

_METADATA: Final = re.compile(r"(?:begun=(?P<begun>[0-9]{1,10}) )?topic-id=(?P<id>.*)")


def committed_places(
    position: Position, begun: Mapping[Partition, int] = MappingProxyType({})
) -> list[TopicPartition]:
    """Offsets to commit, each with the id of its topic.

    Args:
        position: The offsets.
        begun: See `begun_partitions`.
    """
    found = []
    for partition, offset in position.items():
        incarnation = position.incarnations.get(partition)
        text = "" if incarnation is None else f"topic-id={incarnation}"
        if partition in begun:
            text = f"begun={begun[partition]} {text}"
        found.append(TopicPartition(partition.topic, partition.id, offset, text))
    return found


def committed_incarnation(place: TopicPartition) -> str | None:
    """The id of the topic of a committed offset; None if another client committed."""
    match = _METADATA.fullmatch(place.metadata or "")
    return None if match is None else match["id"]


def begun_partitions(place: TopicPartition) -> int | None:
    """With how many partitions of a topic a group began at latest; None if unknown."""
    match = _METADATA.fullmatch(place.metadata or "")
    return None if match is None or match["begun"] is None else int(match["begun"])
