"""A topic on disk: reads rows by offset from segments, and commits epochs."""

from __future__ import annotations

import logging
import time
from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, Final, final

import numpy as np
import pyarrow as pa

from streamfactory.arrowlog.disk.commits import CommitQueue
from streamfactory.arrowlog.disk.filestage import DiskFileStage
from streamfactory.arrowlog.disk.housekeeping import Housekeeper
from streamfactory.arrowlog.disk.naming import fewer_partitions, format_named
from streamfactory.arrowlog.disk.segments import RollingWriter, SegmentReader
from streamfactory.arrowlog.disk.staging import DiskStage, StagedFile
from streamfactory.arrowlog.disk.verifying import verify
from streamfactory.arrowlog.log import (
    FileStage,
    Log,
    LogFile,
    LogSlice,
    LogStage,
    PartitionBounds,
    Staged,
)
from streamfactory.spi import (
    CorruptData,
    MisuseError,
    OffsetOutOfRange,
    Partition,
    StreamError,
    Unsupported,
)

if TYPE_CHECKING:
    import threading
    from collections.abc import (
        Callable,
        Collection,
        Mapping,
        MutableMapping,
        Sequence,
    )

    from streamfactory.arrowlog.disk.journal import Journal
    from streamfactory.arrowlog.disk.records import Record, Run
    from streamfactory.arrowlog.disk.settings import Settings
    from streamfactory.arrowlog.disk.state import State
    from streamfactory.arrowlog.disk.storage import Watch
    from streamfactory.arrowlog.log import Retention
    from streamfactory.spi import LastCommit, Position, Summary, Verification

_TRIES: Final = 8
"""Attempts to find a segment that concurrent merges replace."""

_COPIED: Final = (
    'read it with format("streamfactory"), or copy it to a topic that was created with '
    "segment.format=parquet"
)

_WRITTEN: Final = (
    'write it with format("streamfactory"), or write to a topic that was created with '
    "segment.format=parquet"
)

log = logging.getLogger("streamfactory")


@final
class DiskLog(Log):
    """One topic.

    Args:
        journal: Its records; its clock is that of append times.
        settings: Settings of its segments.
        tidy: Sweeps files outside the topic; called with the topic's sweep.
    """

    def __init__(
        self,
        journal: Journal,
        settings: Settings,
        tidy: Callable[[], None] | None = None,
    ) -> None:
        self.journal = journal
        self.name = journal.name
        self.incarnation = journal.incarnation
        self.storage = journal.storage
        self.schema = journal.known.schema
        self.segment_format = journal.known.segment_format
        self._settings = settings
        self.segments = SegmentReader(
            journal.storage,
            self.schema,
            self._committed_bytes,
            values=settings.check_values,
        )
        self._hints: dict[int, tuple[Run, list[int]]] = {}
        self._watches: list[Watch] = []
        self._waiting: set[Watch] = set()
        self._commits = CommitQueue(journal)
        self._housekeeper = Housekeeper(
            journal, self.segments, settings, offsets_at=self.offsets_at, tidy=tidy
        )

    # --- reading ----------------------------------------------------------------

    def bounds(self) -> Sequence[PartitionBounds]:
        with self.journal.lock:
            state = self.journal.refreshed()
            lanes = zip(state.earliest, state.latest, strict=True)
            return [PartitionBounds(i, *edges) for i, edges in enumerate(lanes)]

    def read(
        self, partition: int, start: int, *, max_rows: int, max_bytes: int
    ) -> LogSlice:
        name = ""
        for _ in range(_TRIES):
            with self.journal.lock:
                state = self.journal.known
                self.journal.check_partition(partition)
                if start >= state.latest[partition]:
                    state = self.journal.refreshed()
                self._check_range(partition, start)
                if start == state.latest[partition]:
                    return LogSlice(None, start, self._bounds(partition))
                found = self._locate(partition, start)
                name = found[0].file
            try:
                return self._slice(found, start, max_rows, max_bytes)
            except FileNotFoundError:  # merged or deleted: the records say which
                with self.journal.lock:
                    self._hints.clear()
                    self.journal.refreshed()
        where = Partition(self.name, partition)
        msg = f"{self.storage.location}/{name}: the segment is missing"
        raise CorruptData(msg, partition=where, offset=start)

    def _locate(self, partition: int, start: int) -> tuple[Run, list[int]]:
        hint = self._hints.get(partition)
        if hint is not None and hint[0].base <= start < hint[0].end:
            return hint
        run = self._found(partition, start)
        hint = run, list(accumulate(run.batches, initial=run.base))
        self._hints[partition] = hint
        return hint

    def _found(self, partition: int, start: int) -> Run:
        run = self.journal.known.index.find(partition, start)
        if run is None:
            msg = f"{self.storage.location}: no segment has the offset"
            where = Partition(self.name, partition)
            raise CorruptData(msg, partition=where, offset=start)
        return run

    def _committed_bytes(self, segment: str) -> int:
        """Return the bytes in memory of a segment's rows.

        Raises:
            FileNotFoundError: It was merged or deleted meanwhile.
        """
        with self.journal.lock:
            runs = self.journal.known.index.runs([segment])
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
        with self.journal.lock:
            if start + count == self.journal.known.latest[run.partition]:
                self.journal.refreshed()
            bounds = self._bounds(run.partition)
        return LogSlice(batch, start, bounds, size * count // rows)

    def files(self, partition: int, start: int, end: int) -> Sequence[LogFile]:
        if format_named(self.segment_format).mixed:
            msg = f"topic {self.name!r} has segments of the format "
            msg += f"{self.segment_format}, which only this log reads by offset"
            raise Unsupported(msg, remedy=_COPIED)
        missing: FileNotFoundError | None = None
        for _ in range(_TRIES):
            with self.journal.lock:
                self.journal.refreshed()
                self.journal.check_partition(partition)
                self._check_range(partition, start)
                runs = self._runs(partition, start, end)
            try:
                for run in runs:
                    self._check_rows(run)
            except FileNotFoundError as error:  # merged or deleted
                missing = error
                continue
            return [
                LogFile(
                    f"{self.storage.location}/{run.file}",
                    partition,
                    run.base,
                    max(start, run.base),
                    min(end, run.end),
                    run.rows,
                )
                for run in runs
            ]
        msg = f"{self.storage.location}: a segment is missing: {missing}"
        raise CorruptData(msg)

    def _runs(self, partition: int, start: int, end: int) -> list[Run]:
        found: list[Run] = []
        while start < end:
            # Not by a hint, which may be older than a merge.
            run = self._found(partition, start)
            found.append(run)
            start = run.end
        return found

    def _check_rows(self, run: Run) -> None:
        """Refuse a segment that has other rows than its record.

        Other programs do not have the record.

        Raises:
            FileNotFoundError: It was removed; this process may still have it open.
        """
        self.storage.size(run.file)
        rows = self.segments.rows(run.file)
        if rows != run.rows:
            msg = f"{self.storage.location}/{run.file} has {rows} rows, but "
            raise CorruptData(msg + f"{run.rows} were committed")

    def wait(
        self,
        partition: int,
        offset: int,
        timeout: float,
        cancelled: threading.Event | None = None,
    ) -> bool:
        deadline = time.monotonic() + timeout
        watch = self._watch()
        try:
            while True:
                with self.journal.lock:
                    self.journal.refreshed(ended=True)
                    self.journal.check_partition(partition)
                    if self.journal.known.latest[partition] > offset:
                        return True
                    if self.journal.known.deleted:
                        return False
                if cancelled is not None and cancelled.is_set():
                    return False
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                watch.wait(left)
        finally:
            self._unwatch(watch)

    def wake(self) -> None:
        with self.journal.lock:
            for watch in self._waiting:
                watch.wake()

    def offsets_at(
        self, timestamp_ms: int, partitions: Collection[int]
    ) -> Mapping[int, int | None]:
        missing: FileNotFoundError | None = None
        for _ in range(_TRIES):
            with self.journal.lock:
                state = self.journal.refreshed()
                lanes = list(partitions)
                for lane in lanes:
                    self.journal.check_partition(lane)
                wanted = np.array(lanes, np.int64)
                candidates = state.index.first_at(wanted, timestamp_ms)
                bounds = [self._bounds(lane) for lane in lanes]
            try:
                pairs = zip(bounds, candidates, strict=True)
                return {b.id: self._first_at(b, c, timestamp_ms) for b, c in pairs}
            except FileNotFoundError as error:  # merged or deleted
                missing = error
        msg = f"{self.storage.location}: a segment is missing: {missing}"
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
                    later = np.flatnonzero(times[:, 1] >= timestamp_ms)
                    if len(later):
                        return base + int(times[later[0], 0])
                base += rows
        except FileNotFoundError:
            with self.journal.lock:
                newest = self.journal.known.index.find(run.partition, run.base)
            if newest is None or newest.file == run.file:
                raise
            return None  # its replacement has the same rows, and is a candidate
        msg = f"{self.storage.location}/{run.file}: append times are missing"
        raise CorruptData(msg)

    # --- writing ----------------------------------------------------------------

    def stage(self, attempt: str, *, validated: bool = False) -> LogStage:
        with self.journal.lock:
            self.journal.refreshed()  # raises if the topic was deleted
        form = format_named(self.segment_format)
        writer = RollingWriter(self.storage, self.schema, self._settings, form)
        return DiskStage(
            attempt,
            self.schema,
            self._check_known,
            writer,
            check_values=self._settings.check_values and not validated,
        )

    def stage_files(self, attempt: str) -> FileStage:
        with self.journal.lock:
            self.journal.refreshed()  # raises if the topic was deleted
        if format_named(self.segment_format).mixed:
            msg = f"topic {self.name!r} has segments of the format "
            msg += f"{self.segment_format}, which only this log writes"
            raise Unsupported(msg, remedy=_WRITTEN)
        return DiskFileStage(
            attempt, self.storage, self.schema, self._settings, self._check_known
        )

    def discard(self, staged: Staged) -> None:
        self._commits.discard([file.name for file in StagedFile.of([staged])])

    def commit(
        self,
        writer: str | None,
        epoch: int,
        staged: Sequence[Staged],
        *,
        instance: str = "",
        summary: Summary,
        source_position: Position | None = None,
        replace: bool = False,
        placed: MutableMapping[int, range] | None = None,
    ) -> LastCommit | None:
        held, spans = self._commits.commit(
            writer, epoch, staged, instance, summary, source_position, replace=replace
        )
        if placed is not None:
            placed.update(spans)
        try:
            self._housekeeper.after_commit()
        except (StreamError, OSError, pa.ArrowException) as error:
            # The epoch is committed nevertheless.
            log.warning("%s: housekeeping: %s", self.name, error)
        return held

    def claim(self, writer: str, instance: str) -> LastCommit | None:
        return self._commits.claim(writer, instance)

    def last(self, writer: str) -> LastCommit | None:
        with self.journal.lock:
            found = self.journal.refreshed().writers.get(writer)
            return None if found is None else found.last()

    def writers(self) -> Mapping[str, LastCommit]:
        with self.journal.lock:
            found = dict(self.journal.refreshed().writers)
        lasts = {name: known.last() for name, known in found.items()}
        return {name: last for name, last in lasts.items() if last is not None}

    def owner(self, writer: str) -> str | None:
        """Return the instance that has claimed a writer; None if there is none."""
        with self.journal.lock:
            found = self.journal.refreshed().writers.get(writer)
            return None if found is None else found.owner

    def held(self, partition: int) -> int:
        """Return the bytes of a partition, as rows are in memory."""
        with self.journal.lock:
            state = self.journal.refreshed()
            sizes = state.index.sizes(partition)
            earliest = state.earliest[partition]
        return sum(
            size * (end - max(base, earliest)) // (end - base)
            for base, end, size in sizes
            if end > earliest
        )

    def forget(self, idle: float, keep: str | None = None) -> None:
        def build(state: State) -> Record | None:
            oldest = self.journal.now_ms() - idle * 1000
            forgotten = [
                name
                for name, known in state.writers.items()
                if known.at < oldest and name != keep
            ]
            return (
                self.journal.record(state, forgotten=forgotten) if forgotten else None
            )

        with self.journal.lock:
            nothing = build(self.journal.known) is None
        if not nothing:
            self.journal.publish(build)

    def grow(self, partitions: int) -> None:
        def build(state: State) -> Record | None:
            have = len(state.latest)
            most = format_named(self.segment_format).most_partitions
            if partitions > most and partitions != have:
                msg = f"topic {self.name!r} can have at most {most} partitions"
                remedy = fewer_partitions(self.segment_format)
                raise MisuseError(msg, remedy=remedy)
            if partitions < have:
                msg = (
                    f"topic {self.name!r} has {have} partitions, and cannot have fewer"
                )
                raise MisuseError(msg)
            if partitions == have:
                return None
            return self.journal.record(state, partitions=partitions)

        self.journal.publish(build)

    def truncate(self, before: Mapping[int, int]) -> None:
        self._housekeeper.truncate(before)

    def retain(self, retention: Retention, hold: Mapping[int, int]) -> None:
        self._housekeeper.retain(retention, hold)

    def sweep(self) -> None:
        self._housekeeper.sweep()

    def compact(self) -> None:
        self._housekeeper.tidy_up()

    def verify(self) -> Verification:
        return verify(self, self.journal)

    def facts(self) -> Mapping[str, str | int]:
        with self.journal.lock:
            state = self.journal.refreshed()
            return {
                "version": state.version,
                "segment format": state.segment_format,
                "segments": state.segments,
                "small segments": len(state.small),
                "bytes": state.index.held(state.floor()),
                "remembered writer ids": len(state.writers),
                "location": self.storage.location,
            }

    def close(self) -> None:
        """Release resources; the topic can still be used."""
        with self.journal.lock:
            watches, self._watches = self._watches, []
        for watch in watches:
            watch.close()
        self.segments.close()
        self.storage.close()

    # --- checks -----------------------------------------------------------------

    def _check_known(self, partition: int) -> None:
        with self.journal.lock:
            if partition >= len(self.journal.known.latest):
                self.journal.refreshed()
            self.journal.check_partition(partition)

    def _check_range(self, partition: int, start: int) -> None:
        earliest = self.journal.known.earliest[partition]
        latest = self.journal.known.latest[partition]
        if not earliest <= start <= latest:
            msg = (
                f"offset {start} is out of range: available are {earliest} to {latest}"
            )
            raise OffsetOutOfRange(
                msg,
                earliest=earliest,
                latest=latest,
                partition=Partition(self.name, partition),
                offset=start,
            )

    def _bounds(self, partition: int) -> PartitionBounds:
        state = self.journal.known
        return PartitionBounds(
            partition, state.earliest[partition], state.latest[partition]
        )

    def _watch(self) -> Watch:
        with self.journal.lock:
            watch = self._watches.pop() if self._watches else None
        watch = watch or self.storage.watch("log")
        with self.journal.lock:
            self._waiting.add(watch)
        return watch

    def _unwatch(self, watch: Watch) -> None:
        with self.journal.lock:
            self._waiting.discard(watch)
            if watch.reusable and len(self._watches) < 4:
                self._watches.append(watch)
                return
        watch.close()
