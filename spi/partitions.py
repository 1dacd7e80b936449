"""Partitions of topics."""

from __future__ import annotations

import operator
from typing import Final, NamedTuple

MAX_PARTITION_ID: Final = 2**31 - 1


class _TopicAndId(NamedTuple):
    topic: str
    """Name of the topic."""
    id: int
    """At least 0 and below 2^31."""


class Partition(_TopicAndId):
    """One partition of a topic. Ids need not be 0 to n-1.

    A named tuple, which is hashed and compared without any code of Python: maps of
    thousands of partitions are made in each poll.

    Args:
        topic: Name of the topic.
        id: At least 0 and below 2^31.

    Raises:
        ValueError: The topic has no name, or the id is out of range.
    """

    __slots__ = ()

    def __new__(cls, topic: str, id: int) -> Partition:
        """Return a partition that has been checked."""
        kind: type = type(topic)
        if kind is not str and not issubclass(kind, str):
            msg = f"the topic is a {kind.__name__!r}: pass its name"
            raise TypeError(msg)
        if not topic:
            msg = "a partition requires the name of its topic"
            raise ValueError(msg)
        if type(id) is not int:  # a bool or NumPy's, say: the text would differ
            id = int(operator.index(id))
        if not 0 <= id <= MAX_PARTITION_ID:
            msg = f"partition id {id!r} is outside 0..{MAX_PARTITION_ID}"
            raise ValueError(msg)
        return tuple.__new__(cls, (topic, id))

    def __str__(self) -> str:
        return f"{self.topic}-{self.id}"
