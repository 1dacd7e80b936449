"""Keeping of an answer what was asked for, on the borders of messages (rule R1)."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa

    from streamfactory.spi import Fetched, FetchLimits


@dataclass(frozen=True, slots=True)
class Answer:
    """What an author answered, or the part of it that is still to be handed out."""

    start: int
    """Where it was asked for; with ``offsets`` None, the offset of the first row."""
    rows: pa.RecordBatch | None
    """None rather than an empty batch."""
    offsets: pa.Int64Array | None
    """Of each row; None: consecutive from ``start``."""
    fetched: Fetched
    """The whole, for everything but rows."""

    def offset(self, index: int) -> int:
        """The offset of a row."""
        if self.offsets is None:
            return self.start + index
        return int(self.offsets[index].as_py())

    def index_of(self, offset: int) -> int:
        """Index of the first row at or after ``offset``."""
        assert self.rows is not None
        count = int(self.rows.num_rows)
        if self.offsets is None:
            return min(max(offset - self.start, 0), count)
        return bisect_left(range(count), offset, key=self.offset)

    def slice(self, first: int, last: int) -> Answer:
        """Rows ``first`` to ``last``, exclusive."""
        assert self.rows is not None
        rows = self.rows.slice(first, last - first)
        if self.offsets is None:
            return replace(self, start=self.start + first, rows=rows)
        offsets = self.offsets.slice(first, last - first)
        return replace(self, rows=rows, offsets=offsets)


class Cut(NamedTuple):
    """An answer in two."""

    answer: Answer
    rest: Answer | None
    """What waits for the next fetch."""
    next_offset: int
    size: int
    """Bytes of ``answer``."""


def cut(answer: Answer, where: int, end: int | None, limits: FetchLimits) -> Cut:
    """Cut an answer that has rows to ``where``, ``end`` and the limits.

    A message, all rows of one offset, is never split: the first one comes whole,
    however long it is.
    """
    assert answer.rows is not None
    fetched, total = answer.fetched, int(answer.rows.num_rows)
    first = answer.index_of(where)
    stop = total if end is None else answer.index_of(end)
    last = min(stop, first + limits.max_rows)
    size = fetched.size if fetched.size is not None else int(answer.rows.nbytes)
    if size > limits.max_bytes and last - first > 1:
        last = min(last, first + max(1, int(total * limits.max_bytes / size)))
    if first < last < stop:
        last = _message_border(answer, first, last)
    rest = answer.slice(last, total) if last < stop else None
    next_offset = answer.offset(last) if last < total else fetched.next_offset
    if first or last < total:
        size = size * (last - first) // total
        answer = answer.slice(first, last)
    return Cut(answer, rest, next_offset, size)


def _message_border(answer: Answer, first: int, last: int) -> int:
    if answer.offsets is None:
        return last
    offset = answer.offset(last)
    if answer.offset(last - 1) != offset:
        return last
    begins = answer.index_of(offset)
    return begins if begins > first else answer.index_of(offset + 1)
