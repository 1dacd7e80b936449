"""Partitions of topics."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Final

MAX_PARTITION_ID: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, order=True)
class Partition:
    """One partition of a topic. Ids need not be 0 to n-1.

    Args:
        topic: Name of the topic.
        id: At least 0 and below 2^31.
    """

    topic: str
    id: int

    def __post_init__(self) -> None:
        if not self.topic:
            msg = "a partition requires the name of its topic"
            raise ValueError(msg)
        if type(self.id) is not int:  # a bool or NumPy's, say: the text would differ
            object.__setattr__(self, "id", int(operator.index(self.id)))
        if not 0 <= self.id <= MAX_PARTITION_ID:
            msg = f"partition id {self.id!r} is outside 0..{MAX_PARTITION_ID}"
            raise ValueError(msg)

    def __str__(self) -> str:
        return f"{self.topic}-{self.id}"
