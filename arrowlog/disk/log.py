"""A topic on disk: what it is, told by the records that others and we have published.

Whoever wants a next step publishes a record under the next number, and nobody else can
have that number. Two that want it at once: one wins, the other takes the winner's step
and tries the number behind it.
"""

from __future__ import annotations

import dataclasses
import logging
import random
import threading
import time
import uuid
from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
import pyarrow as pa

from streamfactory.arrowlog.disk.commits import CommitQueue
from streamfactory.arrowlog.disk.housekeeping import Housekeeper
from streamfactory.arrowlog.disk.loading import hole, load
from streamfactory.arrowlog.disk.records import Record, Run, record_name
from streamfactory.arrowlog.disk.segments import (
    DiskStage,
    RollingWriter,
    SegmentReader,
)
from streamfactory.arrowlog.disk.verifying import verify
from streamfactory.arrowlog.log import LaneBounds, Log, LogSlice, LogStage, Staged
from streamfactory.spi import (
    CorruptData,
    MisuseError,
    OffsetOutOfRange,
    Partition,
    StreamError,
    StreamTimeout,
    TopicNotFound,
    TransientError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from streamfactory.arrowlog.disk.settings import Settings
    from streamfactory.arrowlog.disk.state import State
    from streamfactory.arrowlog.disk.storage import Storage, Watch
    from streamfactory.arrowlog.log import Retention
    from streamfactory.spi import LastCommit, Position, Summary, Verification

_TRIES: Final = 8
"""Looks for a segment that merges move about."""
_PATIENCE: Final = 60.0
"""Seconds that a publication tries to win."""

log = logging.getLogger("streamfactory")


@final
class DiskLog(Log):
    """One topic.

    Args:
        name: Of the topic.
        incarnation: Of this one of that name.
        storage: Of its files.
        settings: How it is written.
        clock: Answers milliseconds since the epoch; the append time.
        tidy: Sweeps what lies around the topic; called when it is swept itself.

    Raises:
        TopicNotFound: permanent.
        CorruptData: data_loss.
        FormatRefused: permanent.
    """

    def __init__(
        self,
        name: str,
        incarnation: str,
        storage: Storage,
        settings: Settings,
        clock: Callable[[], float] | None = None,
        tidy: Callable[[], None] | None = None,
    ) -> None:
        self.name = name
        self.tidy = tidy
        self.incarnation = incarnation
        self.storage = storage
        self.settings = settings
        self.segments = SegmentReader(storage)
        self._now_ms = clock or _wall_clock
        self._lock = threading.RLock()
        """Of what we know."""
        self._publishing = threading.RLock()
        """Held by the one thread of ours that publishes; taken before the other."""
        self._state = self._loaded()
        self._refresh()
        self.schema = self._state.schema
        self._hints: dict[int, tuple[Run, list[int]]] = {}
        self._watches: list[Watch] = []
        self._waiting: set[Watch] = set()
        self._commits = CommitQueue(self)
        self._housekeeper = Housekeeper(self)

    # --- reading ----------------------------------------------------------------

    def bounds(self) -> Sequence[LaneBounds]:
        with self._lock:
            state = self._refresh()
            lanes = zip(state.earliest, state.latest, strict=True)
            return [LaneBounds(i, *edges) for i, edges in enumerate(lanes)]

    def read(
        self, partition: int, start: int, *, max_rows: int, max_bytes: int
    ) -> LogSlice:
        name = ""
        for _ in range(_TRIES):
            with self._lock:
                state = self._state
                self._check_partition(partition)
                if start >= state.latest[partition]:
                    state = self._refresh()
                self._check_range(partition, start)
                if start == state.latest[partition]:
                    return LogSlice(None, start, self._bounds(partition))
                found = self._locate(partition, start)
                name = found[0].file
            try:
                return self._slice(found, start, max_rows, max_bytes)
            except FileNotFoundError:  # merged, or let go: the records say which
                with self._lock:
                    self._hints.clear()
                    self._refresh()
        where = Partition(self.name, partition)
        msg = f"{self.storage.location}/{name}: the segment is missing"
        raise CorruptData(msg, partition=where, offset=start)

    def _locate(self, partition: int, start: int) -> tuple[Run, list[int]]:
        hint = self._hints.get(partition)
        if hint is not None and hint[0].base <= start < hint[0].end:
            return hint
        run = self._state.index.find(partition, start)
        if run is None:
            msg = f"{self.storage.location}: no segment has the offset"
            where = Partition(self.name, partition)
            raise CorruptData(msg, partition=where, offset=start)
        hint = run, list(accumulate(run.batches, initial=run.base))
        self._hints[partition] = hint
        return hint

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
        with self._lock:
            if start + count == self._state.latest[run.partition]:
                self._refresh()
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
                with self._lock:
                    self._refresh(ended=True)
                    self._check_partition(partition)
                    if self._state.latest[partition] > offset:
                        return True
                    if self._state.deleted:
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
        with self._lock:
            for watch in self._waiting:
                watch.wake()

    def offsets_at(
        self, timestamp_ms: int, partitions: Collection[int]
    ) -> Mapping[int, int | None]:
        missing: FileNotFoundError | None = None
        for _ in range(_TRIES):
            with self._lock:
                state = self._refresh()
                lanes = list(partitions)
                for lane in lanes:
                    self._check_partition(lane)
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
            with self._lock:
                newest = self._state.index.find(run.partition, run.base)
            if newest is None or newest.file == run.file:
                raise
            return None  # what hides it has the same rows, and is a candidate
        msg = f"{self.storage.location}/{run.file}: append times are missing"
        raise CorruptData(msg)

    # --- writing ----------------------------------------------------------------

    def stage(self, attempt: str) -> LogStage:
        with self._lock:
            self._refresh()  # a topic that was deleted takes no more files
        writer = RollingWriter(self.storage, self.schema, self.settings)
        return DiskStage(attempt, self.schema, self._check_known, writer)

    def discard(self, staged: Staged) -> None:
        self.discard_files([file["name"] for file in staged.files])

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
    ) -> LastCommit | None:
        held = self._commits.commit(
            writer, epoch, staged, instance, summary, source_position, replace=replace
        )
        try:
            self._housekeeper.after_commit()
        except (StreamError, OSError, pa.ArrowException) as error:
            # The epoch is committed all the same.
            log.warning("%s: housekeeping: %s", self.name, error)
        return held

    def claim(self, writer: str, instance: str) -> LastCommit | None:
        return self._commits.claim(writer, instance)

    def last(self, writer: str) -> LastCommit | None:
        with self._lock:
            found = self._refresh().writers.get(writer)
            return None if found is None else found.last()

    def forget(self, idle: float, keep: str | None = None) -> None:
        def build(state: State) -> Record | None:
            oldest = self._now_ms() - idle * 1000
            forgotten = [
                name
                for name, known in state.writers.items()
                if known.at < oldest and name != keep
            ]
            return self.record(state, forgotten=forgotten) if forgotten else None

        with self._lock:
            nothing = build(self._state) is None
        if not nothing:
            self.publish(build)

    def grow(self, partitions: int) -> None:
        def build(state: State) -> Record | None:
            have = len(state.latest)
            if partitions < have:
                msg = f"{self.name!r} has {have} partitions, never fewer"
                raise MisuseError(msg)
            if partitions == have:
                return None
            return self.record(state, partitions=partitions)

        self.publish(build)

    def truncate(self, before: Mapping[int, int]) -> None:
        self._housekeeper.truncate(before)

    def retain(self, retention: Retention, hold: Mapping[int, int]) -> None:
        self._housekeeper.retain(retention, hold)

    def compact(self) -> None:
        self._housekeeper.tidy_up()

    def verify(self) -> Verification:
        return verify(self)

    def facts(self) -> Mapping[str, str | int]:
        with self._lock:
            state = self._refresh()
            return {
                "version": state.version,
                "segments": state.segments,
                "small segments": len(state.small),
                "bytes": state.index.held(state.floor()),
                "writers": len(state.writers),
                "location": self.storage.location,
            }

    def close(self) -> None:
        """Give back what it holds; the topic can go on being used."""
        with self._lock:
            watches, self._watches = self._watches, []
        for watch in watches:
            watch.close()
        self.segments.close()
        self.storage.close()

    # --- steps ------------------------------------------------------------------

    def record(self, state: State, at: int | None = None, **members: Any) -> Record:
        """A next step after ``state``; only its members are missing.

        Args:
            state: What is known.
            at: The time of the step, of `time_of`.
            **members: Of the record.
        """
        at = self.time_of(state) if at is None else at
        version = state.version + 1 + len(state.void)
        return Record("", version, at, void=tuple(state.void), **members)

    def time_of(self, state: State) -> int:
        """The time of a next step: by the clock, but never before the last step."""
        return max(int(self._now_ms()), state.at)

    def publish(self, build: Callable[[State], Record | None]) -> bool:
        """Take a next step.

        Args:
            build: Makes the record, of what is known; called again whenever another
                writer was first. May raise: then nothing is published. None: there is
                nothing to do.

        Returns:
            Whether this call published.

        Raises:
            StreamTimeout: transient; others were first for too long.
            TransientError: transient; whether it was published is not known.
        """
        identity = uuid.uuid4().hex
        deadline = time.monotonic() + _PATIENCE
        with self._publishing:
            for pause in _pauses():
                with self._lock:
                    state = self._refresh()
                    if identity in state.ids:
                        return True  # the reply was lost, the record was not
                    record = build(state)
                if record is None:
                    return False
                if self._try(record, identity, deadline):
                    return True
                time.sleep(pause)
        return False

    def _try(self, record: Record, identity: str, deadline: float) -> bool:
        data = dataclasses.replace(record, id=identity)
        encoded, name = data.encode(), record_name(record.version)
        late = time.monotonic() > deadline
        try:
            won = self.storage.publish(name, encoded)
        except TransientError:
            if late:
                raise
            return False
        except FileNotFoundError:  # the folder is gone: the topic was deleted
            raise self._gone() from None
        if won:
            return self._won(data, len(encoded))
        if late:
            msg = f"{self.name!r}: other writers were first for {_PATIENCE:.0f} s"
            raise StreamTimeout(msg, remedy="have fewer writers, or larger epochs")
        return False

    def _won(self, record: Record, size: int) -> bool:
        """Whether the number that was taken counts.

        A writer that stalls may find its number free again, because records up to far
        beyond it were removed. While the record before is there, none was.
        """
        before = record.version - 1 - len(record.void)
        with self._lock:
            if self._there(before):
                # Another thread may have read it already: nobody else has its number.
                if self._state.version < record.version:
                    self._state.apply(record, size)
                return True
            self._state = self._loaded()
            if record.id in self._state.ids:
                return True  # it counted, and was removed in its time
            self.storage.remove([record_name(record.version)])
            return False

    def refreshed(self) -> State:
        """All that was published, applied. Hold `lock` while using it."""
        return self._refresh()

    @property
    def known(self) -> State:
        """What was applied so far, without a look. Hold `lock` while using it."""
        return self._state

    @property
    def lock(self) -> threading.RLock:
        """Guards what `refreshed` answers."""
        return self._lock

    @property
    def publishing(self) -> threading.RLock:
        """Held while publishing; taken before `lock`."""
        return self._publishing

    def discard_files(self, names: Collection[str]) -> None:
        """Remove staged files, but for those that were committed.

        By a record first: whoever is about to commit them meets it.
        """
        gone: dict[str, int] = {}

        def build(state: State) -> Record | None:
            gone.clear()
            gone.update({n: 0 for n in names if not state.index.has(n)})
            fresh = {n: 0 for n in gone if n not in state.removed}
            return self.record(state, removed=fresh) if fresh else None

        if not names:
            return
        try:
            self.publish(build)
        except TopicNotFound:  # it has ended: nobody will commit them
            gone.update(dict.fromkeys(names, 0))
        self.storage.remove(gone)

    def check_partitions(self, partitions: Collection[int]) -> None:
        """Refuse partitions that are not there."""
        for partition in partitions:
            self._check_partition(partition)

    def now_ms(self) -> float:
        """By the log's clock."""
        return self._now_ms()

    def reload(self) -> None:
        """Read the newest snapshot: what was known in memory is known in files."""
        fresh = self._loaded()
        with self._lock:
            self._state = fresh
            self._refresh(ended=True)

    def _refresh(self, *, ended: bool = False) -> State:
        """Apply what others have published."""
        state = self._state
        if not self._advance(state):
            seen = state.version
            state = self._state = self._loaded()
            if state.version < seen:
                gone = f"the records from {state.version + 1} to {seen} are missing"
                msg = f"{self.storage.location}: {gone}"
                raise CorruptData(msg)
        if state.deleted and not ended:
            raise self._gone()
        return state

    def _loaded(self) -> State:
        """The topic, read anew: a snapshot, and all records since.

        Raises:
            CorruptData: data_loss; a record is missing.
        """
        before = -1
        while True:
            state = load(self.storage, self.incarnation)
            caught_up = self._advance(state)
            missing = None if state.deleted else hole(self.storage, state)
            # Records that were removed meanwhile leave a newer snapshot behind.
            same = state.version == before
            if missing is not None and (same or self._there(state.version)):
                raise CorruptData(missing)
            if missing is None and (same or caught_up):
                return state
            before = state.version

    def _advance(self, state: State) -> bool:
        """Apply what others have published.

        Answers:
            False where records were removed before they were read, and ``state`` is not
            to be trusted. The oldest go first: while the one that this began behind is
            there, no later one was ever removed. Otherwise a number that was free again
            may have been taken by a writer that had stalled (`_try`).
        """
        behind = state.version
        while True:
            version = state.version + 1 + len(state.void)
            name = record_name(version)
            try:
                data = self.storage.read(name)
            except FileNotFoundError:
                return self._there(behind)
            place = f"{self.storage.location}/{name}"
            try:
                record = Record.decode(data, place)
            except CorruptData:
                log.warning("%s is torn: an epoch that was not synced is lost", place)
                state.void.append(version)
                continue
            try:
                state.apply(record, len(data))
            except CorruptData as error:
                msg = f"{self.storage.location}: {error.what}"
                raise CorruptData(msg) from error
            if state.deleted:
                return True  # nothing follows, and what was before is removed

    def _there(self, version: int) -> bool:
        """Whether a record is there."""
        try:
            self.storage.size(record_name(version))
        except FileNotFoundError:
            if not self.storage.names("log"):
                raise self._gone() from None
            return False
        return True

    def _gone(self) -> TopicNotFound:
        msg = f"the topic {self.name!r} was deleted"
        return TopicNotFound(msg)

    # --- checks -----------------------------------------------------------------

    def _check_known(self, partition: int) -> None:
        with self._lock:
            if partition >= len(self._state.latest):
                self._refresh()
            self._check_partition(partition)

    def _check_partition(self, partition: int) -> None:
        if not 0 <= partition < len(self._state.latest):
            self._refresh()
        if not 0 <= partition < len(self._state.latest):
            msg = f"{self.name!r} has no partition {partition}"
            raise TopicNotFound(msg)

    def _check_range(self, partition: int, start: int) -> None:
        earliest = self._state.earliest[partition]
        latest = self._state.latest[partition]
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
        state = self._state
        return LaneBounds(partition, state.earliest[partition], state.latest[partition])

    def _watch(self) -> Watch:
        with self._lock:
            watch = self._watches.pop() if self._watches else None
        watch = watch or self.storage.watch("log")
        with self._lock:
            self._waiting.add(watch)
        return watch

    def _unwatch(self, watch: Watch) -> None:
        with self._lock:
            self._waiting.discard(watch)
            if watch.reusable and len(self._watches) < 4:
                self._watches.append(watch)
                return
        watch.close()


def _pauses() -> Iterator[float]:
    """Full jitter, up to 50 ms."""
    longest = 0.001
    while True:
        yield random.random() * longest  # noqa: S311 - not a secret
        longest = min(longest * 2, 0.05)


def _wall_clock() -> float:
    return time.time() * 1000
