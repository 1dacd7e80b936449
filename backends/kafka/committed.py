"""Committed offsets of groups.

A committed offset has the topic's id as its metadata, so that an offset of a topic that
was deleted is not continued in the one that replaced it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from confluent_kafka import TopicPartition

if TYPE_CHECKING:
    from streamfactory.spi import Partition

_TOPIC_ID: Final = "topic-id="
"""Beginning of the metadata of a committed offset."""


def committed_place(
    partition: Partition, offset: int, incarnation: str | None
) -> TopicPartition:
    """An offset to commit, with the id of its topic."""
    if incarnation is None:
        return TopicPartition(partition.topic, partition.id, offset)
    return TopicPartition(
        partition.topic, partition.id, offset, f"{_TOPIC_ID}{incarnation}"
    )


def committed_incarnation(place: TopicPartition) -> str | None:
    """The id of the topic of a committed offset; None if another client committed."""
    text = place.metadata or ""
    return text.removeprefix(_TOPIC_ID) if text.startswith(_TOPIC_ID) else None
