"""The queue of one lane of a push table, for the channel and its merge policies."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias, final

if TYPE_CHECKING:
    import pyarrow as pa

    from streamfactory.push.waiting import Gate

Item: TypeAlias = "tuple[int, pa.RecordBatch, int]"
"""A queued batch: its number in the order of arrival over all lanes, its rows, and its
bytes. A plain tuple, because one is created for each batch."""


@final
@dataclass(slots=True)
class LaneQueue:
    """The queued batches of one lane. Used with the channel's lock held."""

    room: Gate
    low_batches: int
    low_bytes: int
    """Producers are woken once no more waits than that: a half of the capacity."""
    items: deque[Item] = field(default_factory=deque)
    size: int = 0
    """Bytes that wait."""
    closed: bool = False
    reader: object = None
    """The reader that it belongs to, if the table is read by lanes."""
    left: bool = False
    """Whether that reader has finished."""
    rows_pushed: int = 0
    rows_read: int = 0

    def pop(self) -> pa.RecordBatch:
        """Take the oldest batch."""
        _, rows, size = self.items.popleft()
        self.size -= size
        self.rows_read += rows.num_rows
        if self.size <= self.low_bytes and len(self.items) <= self.low_batches:
            self.room.open()
        return rows

    def take(self, max_rows: int) -> pa.RecordBatch:
        """Take the oldest batch, or its first rows where it has more."""
        number, rows, size = self.items[0]
        if rows.num_rows <= max_rows:
            return self.pop()
        rest = rows.slice(max_rows)
        self.items[0] = (number, rest, rest.nbytes)
        self.size += rest.nbytes - size
        self.rows_read += max_rows
        return rows.slice(0, max_rows)

    def drop(self) -> None:
        """Remove all queued batches."""
        self.items.clear()
        self.size = 0
