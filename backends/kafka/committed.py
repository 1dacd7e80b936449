"""Committed offsets of groups.

A committed offset has the topic's id as its metadata, so that an offset of a topic that
was deleted is not continued in the one that replaced it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from confluent_kafka import TopicPartition

if TYPE_CHECKING:
    from streamfactory.spi import Position

_TOPIC_ID: Final = "topic-id="
"""Beginning of the metadata of a committed offset."""


def committed_places(position: Position) -> list[TopicPartition]:
    """Offsets to commit, each with the id of its topic."""
    found = []
    for partition, offset in position.items():
        incarnation = position.incarnations.get(partition)
        text = "" if incarnation is None else f"{_TOPIC_ID}{incarnation}"
        found.append(TopicPartition(partition.topic, partition.id, offset, text))
    return found


def committed_incarnation(place: TopicPartition) -> str | None:
    """The id of the topic of a committed offset; None if another client committed."""
    text = place.metadata or ""
    return text.removeprefix(_TOPIC_ID) if text.startswith(_TOPIC_ID) else None
