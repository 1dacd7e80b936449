"""Reads rows of a topic on disk from its segments, by offset and by time."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, Final, final

import numpy as np
import pyarrow as pa

from streamfactory.arrowlog.checks import check_range
from streamfactory.arrowlog.disk.format_lookup import format_named
from streamfactory.arrowlog.disk.segments import SegmentReader
from streamfactory.arrowlog.disk.storage import Opened
from streamfactory.arrowlog.values import LogSlice, PartitionBounds, StoredFile
from streamfactory.spi import CorruptData, Partition, Unsupported

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from streamfactory.arrowlog.disk.journal import Journal
    from streamfactory.arrowlog.disk.records import Run
    from streamfactory.arrowlog.disk.state import State
    from streamfactory.spi import BatchValidator

_TRIES: Final = 8
"""Attempts to find a segment that concurrent merges replace."""

_COPIED: Final = (
    'read it with format("streamfactory"), or copy it to a topic that was created with '
    "segment.format=parquet"
)


@final
class RowReader:
    """Finds and reads the rows of one topic; `DiskLog` documents the methods.

    Args:
        journal: The topic's records.
        validator: Validates rows of segments.
    """

    def __init__(self, journal: Journal, validator: BatchValidator) -> None:
        self._journal = journal
        self._name = journal.name
        self._storage = journal.storage
        self._format = journal.known.segment_format
        self.segments = SegmentReader(
            journal.storage.location,
            self._open_segment,
            journal.known.schema,
            validator,
            self._committed_bytes,
        )
        self._hints: dict[int, tuple[Run, list[int]]] = {}
        """The run that was read last, by partition, and where its batches begin."""

    def read(
        self, partition: int, start: int, max_rows: int, max_bytes: int
    ) -> LogSlice:
        """See `Log.read`."""
        name = ""
        for _ in range(_TRIES):
            state = self._journal.known_with(partition)
            if start >= state.latest[partition]:
                state = self._journal.refreshed()
            check_range(self._name, _bounds(state, partition), start)
            if start == state.latest[partition]:
                return LogSlice(None, start, _bounds(state, partition))
            found = self._locate(state, partition, start)
            name = found[0].file
            try:
                return self._slice(found, start, max_rows, max_bytes)
            except FileNotFoundError:  # merged or deleted: the records say which
                self._hints.clear()
                self._journal.refreshed()
        where = Partition(self._name, partition)
        msg = f"{self._storage.location}/{name}: the segment is missing"
        raise CorruptData(msg, partition=where, offset=start)

    def _locate(
        self, state: State, partition: int, start: int
    ) -> tuple[Run, list[int]]:
        hint = self._hints.get(partition)
        if hint is not None and hint[0].base <= start < hint[0].end:
            return hint
        run = self._found(state, partition, start)
        hint = run, list(accumulate(run.batches, initial=run.base))
        self._hints[partition] = hint
        return hint

    def _found(self, state: State, partition: int, start: int) -> Run:
        run = state.index.find(partition, start)
        if run is None:
            msg = f"{self._storage.location}: no segment has the offset"
            where = Partition(self._name, partition)
            raise CorruptData(msg, partition=where, offset=start)
        return run

    def _open_segment(self, name: str) -> Opened:
        content = self._journal.known.inline.get(name)
        if content is None:
            return self._storage.open(name)
        return Opened(pa.BufferReader(content), own=True)

    def _committed_bytes(self, segment: str) -> int:
        """Return the bytes in memory of a segment's rows.

        Raises:
            FileNotFoundError: It was merged or deleted meanwhile.
        """
        runs = self._journal.known.index.runs([segment])
        if not runs:
            raise FileNotFoundError(segment)
        return sum(run.size for run in runs)

    def _slice(
        self, found: tuple[Run, list[int]], start: int, max_rows: int, max_bytes: int
    ) -> LogSlice:
        run, bases = found
        number = bisect_right(bases, start) - 1
        rows = run.batches[number]
        batch = self.segments.batch(run.file, run.first_batch + number, rows)
        skip = start - bases[number]
        size = run.size * rows // run.rows
        count = min(rows - skip, max_rows)
        if size > max_bytes:
            count = min(count, max(1, max_bytes * rows // size))
        if count < rows:
            batch = batch.slice(skip, count)
        batch = self.segments.convertible(batch)
        count = batch.num_rows
        state = self._journal.known
        if start + count == state.latest[run.partition]:
            state = self._journal.refreshed()
        bounds = _bounds(state, run.partition)
        return LogSlice(batch, start, bounds, size * count // rows)

    def files(self, partition: int, start: int, end: int) -> Sequence[StoredFile]:
        """See `Log.files`."""
        if format_named(self._format).mixed:
            msg = f"topic {self._name!r} has segments of the format "
            msg += f"{self._format}, which only this log reads by offset"
            raise Unsupported(msg, remedy=_COPIED)
        missing: FileNotFoundError | None = None
        for _ in range(_TRIES):
            self._journal.refreshed()
            state = self._journal.known_with(partition)
            check_range(self._name, _bounds(state, partition), start)
            runs = self._runs(state, partition, start, end)
            try:
                for run in runs:
                    self._check_rows(run)
            except FileNotFoundError as error:  # merged or deleted
                missing = error
                continue
            return [
                StoredFile(
                    f"{self._storage.location}/{run.file}",
                    partition,
                    run.base,
                    max(start, run.base),
                    min(end, run.end),
                    run.rows,
                )
                for run in runs
            ]
        msg = f"{self._storage.location}: a segment is missing: {missing}"
        raise CorruptData(msg)

    def _runs(self, state: State, partition: int, start: int, end: int) -> list[Run]:
        found: list[Run] = []
        while start < end:
            # Not by a hint, which may be older than a merge.
            run = self._found(state, partition, start)
            found.append(run)
            start = run.end
        return found

    def _check_rows(self, run: Run) -> None:
        """Refuse a segment that has other rows than its record.

        Other programs do not have the record.

        Raises:
            FileNotFoundError: It was removed; this process may still have it open.
        """
        self._storage.size(run.file)
        rows = self.segments.rows(run.file)
        if rows != run.rows:
            msg = f"{self._storage.location}/{run.file} has {rows} rows, but "
            raise CorruptData(msg + f"{run.rows} were committed")

    def offsets_at(
        self, timestamp_ms: int, partitions: Collection[int]
    ) -> Mapping[int, int | None]:
        """See `Log.offsets_at`."""
        missing: FileNotFoundError | None = None
        for _ in range(_TRIES):
            self._journal.refreshed()
            state = self._journal.known_with(*partitions)
            wanted = np.array(list(partitions), np.int64)
            candidates = state.index.first_at(wanted, timestamp_ms)
            bounds = [_bounds(state, partition) for partition in partitions]
            try:
                pairs = zip(bounds, candidates, strict=True)
                return {b.id: self._first_at(b, c, timestamp_ms) for b, c in pairs}
            except FileNotFoundError as error:  # merged or deleted
                missing = error
        msg = f"{self._storage.location}: a segment is missing: {missing}"
        raise CorruptData(msg)

    def _first_at(
        self,
        bounds: PartitionBounds,
        candidates: Sequence[tuple[int, Run | None]],
        timestamp_ms: int,
    ) -> int | None:
        """Return the first offset appended at or after a time."""
        offsets = [
            at
            if run is None or run.end <= bounds.earliest
            else self._exact(run, timestamp_ms)
            for at, run in candidates
        ]
        known = [offset for offset in offsets if offset is not None]
        first = max(min(known), bounds.earliest) if known else bounds.latest
        return None if first == bounds.latest else first

    def _exact(self, run: Run, timestamp_ms: int) -> int | None:
        """Return the offset within a run of several epochs.

        None if the run was replaced.

        Raises:
            FileNotFoundError: It was merged or deleted.
        """
        base = run.base
        try:
            for number, rows in enumerate(run.batches):
                times = self.segments.times(run.file, run.first_batch + number)
                if times is not None:
                    later = times[:, 1] >= timestamp_ms
                    first = int(later.argmax())
                    if later[first]:
                        return base + int(times[first, 0])
                base += rows
        except FileNotFoundError:
            newest = self._journal.known.index.find(run.partition, run.base)
            if newest is None or newest.file == run.file:
                raise
            return None  # its replacement has the same rows, and is a candidate
        msg = f"{self._storage.location}/{run.file}: append times are missing"
        raise CorruptData(msg)


def _bounds(state: State, partition: int) -> PartitionBounds:
    return PartitionBounds(
        partition, state.earliest[partition], state.latest[partition]
    )
