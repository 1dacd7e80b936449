"""What an attempt has written to each partition, for records of commits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow.compute as pc

if TYPE_CHECKING:
    from streamfactory.spi import Outgoing


@dataclass(slots=True)
class PartitionCounts:
    """What was written to one partition. Picklable."""

    topic: str
    partition: int
    writes: int = 0
    """Rows or messages, tombstones among them."""
    upserts: int = 0
    """Messages with a key and a value: of a key, the last one counts."""
    deletes: int = 0
    """Tombstones: messages with a key and no value."""
    size: int = 0
    """Bytes of rows and keys in Arrow's format, before the sink encodes or compresses
    them."""

    def add(self, other: PartitionCounts) -> None:
        """Add the counts of another attempt."""
        self.writes += other.writes
        self.upserts += other.upserts
        self.deletes += other.deletes
        self.size += other.size


class Counting:
    """Counts the rows of one attempt by partition.

    Args:
        topic: The sink's own topic, for rows that name none.
        messages: Whether the rows are messages with keys, instead of typed rows.
    """

    def __init__(self, topic: str, *, messages: bool) -> None:
        self._topic = topic
        self._messages = messages
        self._found: dict[tuple[str, int], PartitionCounts] = {}

    def add(self, outgoing: Outgoing, size: int) -> None:
        """Count rows that were written.

        Args:
            outgoing: The rows.
            size: Their bytes in memory, without the key.
        """
        topic = outgoing.topic or self._topic
        place = topic, outgoing.partition
        counts = self._found.get(place)
        if counts is None:
            counts = self._found[place] = PartitionCounts(*place)
        rows = outgoing.rows.num_rows
        counts.writes += rows
        counts.size += size
        key = outgoing.key
        if key is None:
            return
        counts.size += key.nbytes
        if self._messages:
            deleted = pc.and_(pc.is_valid(key), pc.is_null(outgoing.rows.column(0)))
            deletes = pc.sum(deleted).as_py() or 0
            counts.deletes += deletes
            counts.upserts += rows - key.null_count - deletes

    def total(self) -> tuple[PartitionCounts, ...]:
        """The counts of each partition, sorted."""
        return tuple(self._found[place] for place in sorted(self._found))
