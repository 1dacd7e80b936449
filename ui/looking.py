"""Rows of one partition for a page: the first or the last ones, within bounds."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, final

from streamfactory.spi import BatchState
from streamfactory.ui.cells import cell_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streamfactory.spi import MessageBatch, PartitionInfo
    from streamfactory.wiring.reading.reader import Reader

ROWS: Final = 20
"""First or last rows of a partition that a page shows."""
_BATCH: Final = 1000
"""Messages that are fetched at once where only the last rows are kept."""
_BYTES: Final = 4 << 20
_SECONDS: Final = 5.0
_WIDTHS: Final = (4, 16, 64, 256, 1024, 4096)
"""Offsets of the ranges that are read from the end backwards: a message may be many
rows, and offsets may have none, as those of transaction markers."""


@dataclass
class Found:
    """What was found."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    """Each with ``offset`` and ``cells``, in their order."""
    cut: bool = False
    """Whether a bound ended the reading before `ROWS` were found."""
    among: int | None = None
    """Offsets at the end that were read; None if all were, or it is not known."""


def look(
    reader: Reader, info: PartitionInfo, columns: Sequence[str], *, last: bool
) -> Found:
    """Read the first or the last rows of a partition.

    Args:
        reader: Of the partition; closed by the caller.
        info: Its bounds.
        columns: Names of the columns that are shown.
        last: Whether the last rows are read, instead of the first.

    Raises:
        StreamError: As `Reader.fetch`.
    """
    found, looking = Found(), _Look(reader, columns)
    if not last:
        for batch in looking.batches(info.start, info.latest):
            found.rows += looking.rows(batch, 0, ROWS - len(found.rows))
            if len(found.rows) == ROWS:
                return found
    elif info.latest is None:
        found.rows = looking.newest(info.start, None, ROWS)
    else:
        _look_back(looking, info.start, info.latest, found)
    found.cut = looking.cut
    return found


def _look_back(looking: _Look, start: int, latest: int, found: Found) -> None:
    """Read ranges from the end backwards, until there are enough rows.

    The newest range is read whatever its size is; of others, what a bound cut is not
    shown, as rows between it and the newer ones would be missing.
    """
    end = latest
    for width in (*_WIDTHS, latest):
        begin = max(start, end - width)
        wanted = ROWS - len(found.rows)
        older = looking.newest(begin, end, wanted, whole=end == latest)
        if looking.cut:
            break
        found.rows[:0] = older
        end = begin
        if end <= start or len(found.rows) >= ROWS:
            break
    found.among = latest - end if end > start else None


@final
class _Look:
    """Reads batches within bounds of time and size, which all ranges share."""

    def __init__(self, reader: Reader, columns: Sequence[str]) -> None:
        self._reader, self._columns = reader, columns
        self._deadline, self._size = time.monotonic() + _SECONDS, 0
        self.cut = False
        """Whether a bound was reached before the end of a range."""

    def newest(
        self, start: int, end: int | None, most: int, *, whole: bool = False
    ) -> list[dict[str, Any]]:
        """The last rows of a range, or of its beginning if a bound was reached."""
        kept: deque[tuple[MessageBatch, int]] = deque(maxlen=most)
        for batch in self.batches(start, end, most=_BATCH, whole=whole):
            count = batch.num_rows
            kept.extend((batch, at) for at in range(max(0, count - most), count))
        return [row for batch, at in kept for row in self.rows(batch, at, 1)]

    def rows(self, batch: MessageBatch, at: int, most: int) -> list[dict[str, Any]]:
        """Rows of a batch as a page shows them, from an index on."""
        part = batch.rows.slice(at, most)
        if batch.offsets is not None:
            offsets = batch.offsets.slice(at, most).to_pylist()
        else:
            first = (batch.first_offset or 0) + at
            offsets = list(range(first, first + part.num_rows))
        cells = cell_rows(part, self._columns)
        return [
            {"offset": offset, "cells": row}
            for offset, row in zip(offsets, cells, strict=True)
        ]

    def batches(
        self, start: int, end: int | None, *, most: int = ROWS, whole: bool = False
    ) -> Iterator[MessageBatch]:
        """Batches up to an end, or to the bounds.

        Args:
            start: The first offset.
            end: Exclusive; None for all there is.
            most: Messages of one batch.
            whole: Whether the bound of the size does not apply.
        """
        while end is None or start < end:
            left = self._deadline - time.monotonic()
            if left <= 0 or (self._size >= _BYTES and not whole):
                self.cut = True
                return
            batch = self._reader.fetch(
                start, end=end, max_rows=most, max_bytes=_BYTES, timeout=left
            )
            self._size += batch.size
            yield batch
            stopped = batch.next_offset <= start or (end is None and not batch.num_rows)
            if stopped or batch.state is BatchState.END_OF_PARTITION:
                self.cut = batch.state in (BatchState.IDLE, BatchState.THROTTLED)
                return
            start = batch.next_offset
