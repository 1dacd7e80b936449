"""Cuts results to the requested range and limits, at message boundaries (rule R1)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from streamfactory.spi import Fetched, FetchLimits


@dataclass(frozen=True, slots=True)
class Answer:
    """A consumer's result, or the part of it that was not returned yet."""

    start: int
    """The requested offset; with ``offsets`` None, that of the first row."""
    rows: pa.RecordBatch | None
    """None instead of an empty batch."""
    offsets: pa.Int64Array | None
    """Of each row; None: consecutive from ``start``."""
    fetched: Fetched
    """The complete result, for everything but rows."""
    size: int = 0
    """Bytes of ``rows``."""
    count: int = 0
    """Messages of this part, including those that produced no row."""

    @classmethod
    def of(
        cls, start: int, fetched: Fetched, offsets: pa.Int64Array | None = None
    ) -> Answer:
        """Create it from the complete result of a fetch at ``start``."""
        rows = fetched.rows
        if rows is None or not rows.num_rows:
            return cls(start, None, None, fetched, 0, fetched.unfiltered_count or 0)
        size = int(rows.nbytes) if fetched.size is None else fetched.size
        count = fetched.unfiltered_count
        count = int(rows.num_rows) if count is None else count
        return cls(start, rows, offsets, fetched, size, count)

    @property
    def num_rows(self) -> int:
        """Rows in it."""
        return 0 if self.rows is None else int(self.rows.num_rows)

    def offset(self, index: int) -> int:
        """The offset of a row."""
        if self.offsets is None:
            return self.start + index
        return int(self.offsets[index].as_py())

    def index_of(self, offset: int) -> int:
        """Index of the first row at or after ``offset``."""
        count = self.num_rows
        if self.offsets is None:
            return min(max(offset - self.start, 0), count)
        return bisect_left(range(count), offset, key=self.offset)

    def empty(self) -> Answer:
        """Return the result without its rows."""
        return replace(self, rows=None, offsets=None, size=0, count=0)

    def drop(self, before: int) -> Answer:
        """Return the result without the rows before an offset."""
        first, total = self.index_of(before), self.num_rows
        if first == 0:
            return self
        if first == total:
            return replace(self.empty(), start=before)
        return replace(self._slice(first, total), count=total - first)

    def split(self, index: int) -> tuple[Answer, Answer]:
        """Split at a row; losses, state and end go with one part only."""
        head = replace(self._slice(0, index), count=index)
        rest = self._slice(index, self.num_rows)
        fetched = replace(self.fetched, losses=())
        left = max(self.count - index, rest.num_rows)
        return head, replace(rest, fetched=fetched, count=left)

    def _slice(self, first: int, last: int) -> Answer:
        assert self.rows is not None
        rows = self.rows.slice(first, last - first)
        size = int(self.size * rows.nbytes / max(1, int(self.rows.nbytes)))
        if self.offsets is None:
            return replace(self, start=self.start + first, rows=rows, size=size)
        offsets = self.offsets.slice(first, last - first)
        return replace(self, rows=rows, offsets=offsets, size=size)


def cut(
    answer: Answer, end: int | None, limits: FetchLimits
) -> tuple[Answer, Answer | None, int]:
    """Cut a result to ``end`` and the limits.

    A message, that is all rows of one offset, is never split: the first one is returned
    complete, however long it is.

    Returns:
        The part to return now; the part for the next fetch; the next offset.
    """
    total = answer.num_rows
    stop = total if end is None else answer.index_of(end)
    last = min(stop, limits.max_rows)
    if answer.size > limits.max_bytes and last > 1:
        last = _fitting(answer, last, limits.max_bytes)
    if 0 < last < stop:
        last = _message_border(answer, last)
    if last == total:
        return answer, None, max(answer.fetched.next_offset, answer.start)
    next_offset = answer.offset(last)
    if last == 0:
        return answer.empty(), None, next_offset
    head, rest = answer.split(last)
    return head, rest if last < stop else None, next_offset


def _fitting(answer: Answer, rows: int, max_bytes: int) -> int:
    """Return how many rows fit, by the bytes of each row: a long message is alone."""
    whole = answer.rows
    assert whole is not None
    scale = answer.size / max(1, int(whole.nbytes))
    fits = bisect_right(
        range(1, rows + 1), max_bytes, key=lambda n: whole.slice(0, n).nbytes * scale
    )
    return max(1, fits)


def _message_border(answer: Answer, last: int) -> int:
    if answer.offsets is None:
        return last
    offset = answer.offset(last)
    if answer.offset(last - 1) != offset:
        return last
    return answer.index_of(offset) or answer.index_of(offset + 1)
