"""Merges small segments into few larger ones; offsets are unchanged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streamfactory.arrowlog.disk.records import Run, Segment
from streamfactory.arrowlog.disk.staging import BATCH_BYTES, BATCH_ROWS, pieces

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from streamfactory.arrowlog.disk.segments import (
        RollingWriter,
        SegmentReader,
        SegmentWriter,
    )
    from streamfactory.arrowlog.disk.settings import Settings
    from streamfactory.arrowlog.disk.state import State


_INLINE_BYTES: Final = 4 << 20
"""Bytes of inline segments from which on they are merged before a snapshot is due."""


def choose(
    state: State, settings: Settings, *, everything: bool = False
) -> Sequence[str] | None:
    """Return the segments to merge next; None if nothing is due.

    Segments of one level are merged: a row is rewritten once per level, and there are
    at most levels times ``merge_files`` files, plus full ones. In a format that does
    not mix partitions, that many of each partition. Inline segments are merged before
    each snapshot: readers then have few of them in memory.

    Args:
        state: What is known.
        settings: Settings of merges.
        everything: Whether to merge all segments that can be merged.
    """
    if state.inline and (
        everything
        or state.is_snapshot_due
        or sum(map(len, state.inline.values())) >= _INLINE_BYTES
    ):
        return list(state.inline)
    least = 2 if everything else settings.merge_files
    if len(state.small) < least:
        return None
    groups: dict[tuple[int, int | None], list[str]] = {}
    for name, one in state.small.items():
        level = 0 if everything else one.level
        groups.setdefault((level, one.partition), []).append(name)
    return next((files for files in groups.values() if len(files) >= least), None)


def merge(
    segments: SegmentReader,
    writer: RollingWriter,
    runs: Sequence[Run],
    floor: Sequence[int],
    level: int,
) -> list[Segment]:
    """Rewrite the rows of ``runs``.

    Args:
        segments: Reads them.
        writer: Writes them; new, and not usable afterwards.
        runs: Runs by partition and offset.
        floor: Earliest by partition: runs before it are dropped.
        level: Level of the new segments.

    Raises:
        FileNotFoundError: Another process has merged or deleted them.
    """
    merger = _Merger(segments, writer)
    try:
        for run in runs:
            if run.end > floor[run.partition]:
                merger.add(run)
        merger.flush()
        writer.roll()
    except BaseException:
        writer.abandon()
        raise
    merged = [merger.segment(done, size, level) for done, size in writer.done]
    # All but the last were ended by a threshold, by a gap of offsets (Parquet), or by
    # dictionaries that do not fit into one file: merging them again would not reduce
    # their number.
    last = len(merged) - 1
    return [
        one._replace(full=one.full or number < last)
        for number, one in enumerate(merged)
    ]


class _Merger:
    """Combines consecutive rows of one partition into batches of a suitable size."""

    def __init__(self, segments: SegmentReader, writer: RollingWriter) -> None:
        self._segments = segments
        self._writer = writer
        self._partition = -1
        self._base = 0
        self._end = -1
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0
        self._size = 0
        self._times: list[tuple[int, int]] = []
        """First row and time of each group of rows appended together."""
        self._order: list[tuple[int, int, int, int]] = []
        """Partition, base, first and last time of each batch, as written."""

    def add(self, run: Run) -> None:
        """Take the next run."""
        if run.partition != self._partition or run.base != self._end:
            self.flush()
            self._writer.part()
            self._partition, self._base, self._end = run.partition, run.base, run.base
        for number, rows in enumerate(run.batches):
            batch = self._segments.batch(run.file, run.first_batch + number, rows)
            times = [(0, run.first_ms)]
            if run.first_ms != run.last_ms:
                found = self._segments.times(run.file, run.first_batch + number)
                times = times if found is None else [(a, b) for a, b in found.tolist()]
            self._take(batch, times, run.size * rows // run.rows)

    def _take(
        self, batch: pa.RecordBatch, times: list[tuple[int, int]], size: int
    ) -> None:
        if self._rows and (
            self._rows + batch.num_rows > BATCH_ROWS or self._size + size > BATCH_BYTES
        ):
            self.flush()
        for row, at in times:
            if not self._times or self._times[-1][1] != at:
                self._times.append((self._rows + row, at))
        self._waiting.append(batch)
        self._rows += batch.num_rows
        self._size += size
        self._end += batch.num_rows

    def flush(self) -> None:
        """Write the combined rows."""
        for rows in pieces(self._waiting, self._writer.cut):
            at = self._end - self._rows
            times = _from(self._times, rows.num_rows)
            self._writer.write(self._partition, rows, times[0])
            first, last = times[0][0][1], times[0][-1][1]
            self._order.append((self._partition, at, first, last))
            self._times = times[1]
            self._rows -= rows.num_rows
        self._waiting, self._times, self._rows, self._size = [], [], 0, 0

    def segment(self, done: SegmentWriter, size: int, level: int) -> Segment:
        """Return a written file with its offsets. Call it in the order of the files."""
        runs: list[Run] = []
        for partition, first_batch, batches, bytes_ in done.runs:
            written = self._order[: len(batches)]
            del self._order[: len(batches)]
            runs += _runs(done.name, partition, first_batch, batches, bytes_, written)
        return Segment(done.name, size, level, done.full, tuple(runs))


def _runs(
    name: str,
    partition: int,
    first_batch: int,
    batches: Sequence[int],
    size: int,
    written: Sequence[tuple[int, int, int, int]],
) -> list[Run]:
    """Return runs of consecutive batches, separated at gaps."""
    total = sum(batches)
    runs: list[Run] = []
    for i, (rows, (_, base, first, last)) in enumerate(
        zip(batches, written, strict=True)
    ):
        share = size * rows // total
        before = runs[-1] if runs else None
        if before is not None and before.end == base:
            runs[-1] = before._replace(
                rows=before.rows + rows,
                batches=(*before.batches, rows),
                size=before.size + share,
                last_ms=last,
            )
        else:
            runs.append(
                Run(
                    partition,
                    base,
                    rows,
                    name,
                    first_batch + i,
                    (rows,),
                    share,
                    first,
                    last,
                )
            )
    return runs


def _from(
    times: list[tuple[int, int]], rows: int
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Times of the first ``rows`` rows, and of those behind them."""
    here = [pair for pair in times if pair[0] < rows]
    behind = [(row - rows, at) for row, at in times if row > rows]
    if not any(row == rows for row, _ in times):
        behind = [(0, here[-1][1]), *behind]
    else:
        behind = [(0, next(at for row, at in times if row == rows)), *behind]
    return here, behind
