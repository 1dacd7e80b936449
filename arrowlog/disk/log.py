"""A topic on disk: rows by offset, out of the segments that its records name."""

from __future__ import annotations

import logging
import time
from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, Final, final

import numpy as np
import pyarrow as pa

from streamfactory.arrowlog.checks import MOST_PARTITIONS
from streamfactory.arrowlog.disk.commits import CommitQueue
from streamfactory.arrowlog.disk.housekeeping import Housekeeper
from streamfactory.arrowlog.disk.segments import RollingWriter, SegmentReader
from streamfactory.arrowlog.disk.staging import DiskStage, StagedFile
from streamfactory.arrowlog.disk.verifying import verify
from streamfactory.arrowlog.log import LaneBounds, Log, LogSlice, LogStage, Staged
from streamfactory.spi import (
    CorruptData,
    MisuseError,
    OffsetOutOfRange,
    Partition,
    StreamError,
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
"""Looks for a segment that merges move about."""

log = logging.getLogger("streamfactory")


@final
class DiskLog(Log):
    """One topic.

    Args:
        journal: Its records; its clock gives the append time.
        settings: How it is written.
        tidy: Sweeps what lies around the topic; called when it is swept itself.
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

    def bounds(self) -> Sequence[LaneBounds]:
        with self.journal.lock:
            state = self.journal.refreshed()
            lanes = zip(state.earliest, state.latest, strict=True)
            return [LaneBounds(i, *edges) for i, edges in enumerate(lanes)]

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
            except FileNotFoundError:  # merged, or let go: the records say which
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
        run = self.journal.known.index.find(partition, start)
        if run is None:
            msg = f"{self.storage.location}: no segment has the offset"
            where = Partition(self.name, partition)
            raise CorruptData(msg, partition=where, offset=start)
        hint = run, list(accumulate(run.batches, initial=run.base))
        self._hints[partition] = hint
        return hint

    def _committed_bytes(self, segment: str) -> int:
        """Bytes in memory of what a segment holds.

        Raises:
            FileNotFoundError: It was merged or let go meanwhile.
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
            except FileNotFoundError as error:  # merged, or let go
                missing = error
        msg = f"{self.storage.location}: a segment is missing: {missing}"
        raise CorruptData(msg)

    def _first_at(
        self,
        bounds: LaneBounds,
        candidates: Sequence[tuple[int, Run | None]],
        timestamp_ms: int,
    ) -> int | None:
        """The first offset appended at or after a time."""
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
        """The offset within a run of several epochs; None where the run is hidden.

        Raises:
            FileNotFoundError: Others have merged it, or let it go.
        """
        base = run.base
        try:
            for number, rows in enumerate(run.batches):
                batch = run.first_batch + number
                for row, at in self.segments.times(run.file, batch) or ():
                    if at >= timestamp_ms:
                        return base + row
                base += rows
        except FileNotFoundError:
            with self.journal.lock:
                newest = self.journal.known.index.find(run.partition, run.base)
            if newest is None or newest.file == run.file:
                raise
            return None  # what hides it has the same rows, and is a candidate
        msg = f"{self.storage.location}/{run.file}: append times are missing"
        raise CorruptData(msg)

    # --- writing ----------------------------------------------------------------

    def stage(self, attempt: str) -> LogStage:
        with self.journal.lock:
            self.journal.refreshed()  # a topic that was deleted takes no more files
        writer = RollingWriter(self.storage, self.schema, self._settings)
        return DiskStage(
            attempt,
            self.schema,
            self._check_known,
            writer,
            check_values=self._settings.check_values,
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
            # The epoch is committed all the same.
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
        """The instance that has claimed a writer; None where none has."""
        with self.journal.lock:
            found = self.journal.refreshed().writers.get(writer)
            return None if found is None else found.owner

    def held(self, partition: int) -> int:
        """Bytes that a partition holds, as rows are in memory."""
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
            if partitions > MOST_PARTITIONS:
                msg = f"{self.name!r} has at most {MOST_PARTITIONS} partitions"
                raise MisuseError(msg)
            if partitions < have:
                msg = f"{self.name!r} has {have} partitions, never fewer"
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
                "segments": state.segments,
                "small segments": len(state.small),
                "bytes": state.index.held(state.floor()),
                "remembered writer ids": len(state.writers),
                "location": self.storage.location,
            }

    def close(self) -> None:
        """Give back what it holds; the topic can go on being used."""
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
            msg = f"the log has offsets {earliest} to {latest}, not {start}"
            raise OffsetOutOfRange(
                msg,
                earliest=earliest,
                latest=latest,
                partition=Partition(self.name, partition),
                offset=start,
            )

    def _bounds(self, partition: int) -> LaneBounds:
        state = self.journal.known
        return LaneBounds(partition, state.earliest[partition], state.latest[partition])

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
