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
from typing import TYPE_CHECKING, Final, final

import numpy as np

from streamfactory.arrowlog.disk.commits import CommitQueue
from streamfactory.arrowlog.disk.housekeeping import Housekeeper
from streamfactory.arrowlog.disk.loading import load, record_name
from streamfactory.arrowlog.disk.records import Record, Run
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
    ) -> None:
        self.name = name
        self.incarnation = incarnation
        self.storage = storage
        self.settings = settings
        self.segments = SegmentReader(storage)
        self._now_ms = clock or _wall_clock
        self._lock = threading.RLock()
        """Of what we know."""
        self._publishing = threading.RLock()
        """Held by the one thread of ours that publishes; taken before the other."""
        self._state = load(storage, incarnation)
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
            try:
                return self._slice(found, start, max_rows, max_bytes)
            except FileNotFoundError:  # merged, or let go: the records say which
                with self._lock:
                    self._hints.clear()
                    self._refresh()
        where = Partition(self.name, partition)
        msg = f"{self.storage.location}: the segment of this offset is missing"
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
        with self._lock:
            state = self._refresh()
            lanes = list(partitions)
            for lane in lanes:
                self._check_partition(lane)
            wanted = np.array(lanes, np.int64)
            candidates = state.index.first_at(wanted, timestamp_ms)
            earliest = {lane: state.earliest[lane] for lane in lanes}
        answer: dict[int, int | None] = {}
        for lane, found in zip(lanes, candidates, strict=True):
            offsets = [self._exact(at, run, timestamp_ms) for at, run in found]
            known = [offset for offset in offsets if offset is not None]
            answer[lane] = max(min(known), earliest[lane]) if known else None
            if known and answer[lane] == state.latest[lane]:
                answer[lane] = None  # all that is so late was let go
        return answer

    def _exact(self, offset: int, run: Run | None, timestamp_ms: int) -> int | None:
        """The offset within a run of several epochs; None where the run is hidden."""
        if run is None:
            return offset
        base = run.base
        try:
            for number, rows in enumerate(run.batches):
                batch = run.first_batch + number
                times = self.segments.times(run.file, batch) or []
                for row, at in times:
                    if at >= timestamp_ms:
                        return base + row
                base += rows
        except FileNotFoundError:
            # Merged meanwhile: a newer run has the same rows, and is a candidate.
            return None
        return None if run.last_ms < timestamp_ms else run.end

    # --- writing ----------------------------------------------------------------

    def stage(self, attempt: str) -> LogStage:
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
        except (StreamError, OSError) as error:  # the epoch is committed all the same
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
                "bytes": state.size,
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

    def record(self, state: State, **members: object) -> Record:
        """A next step after ``state``; only its members are missing."""
        at = max(int(self._now_ms()), state.at)
        version = state.version + 1 + len(state.void)
        void = tuple(state.void)
        return Record("", version, at, void=void, **members)  # type: ignore[arg-type]

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
        name = record_name(record.version)
        late = time.monotonic() > deadline
        try:
            won = self.storage.publish(name, data.encode())
        except TransientError:
            if late:
                raise
            return False
        except FileNotFoundError:  # the folder is gone: the topic was deleted
            raise self._gone() from None
        if not won and late:
            msg = f"{self.name!r}: other writers were first for {_PATIENCE:.0f} s"
            raise StreamTimeout(msg, remedy="have fewer writers, or larger epochs")
        return False if not won else self._took(identity)

    def _took(self, identity: str) -> bool:
        with self._lock:
            return identity in self._refresh(ended=True).ids

    def refreshed(self) -> State:
        """All that was published, applied. Hold `lock` while using it."""
        return self._refresh()

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

        if names:
            self.publish(build)
            self.storage.remove(gone)

    def check_partitions(self, partitions: Collection[int]) -> None:
        """Refuse partitions that are not there."""
        for partition in partitions:
            self._check_partition(partition)

    def strip(self) -> None:
        """Remove the files of a topic that has ended, but for its last record."""
        last = record_name(self._state.version).removeprefix("log/")
        names = sorted(self.storage.names("log"))
        self.storage.remove(f"log/{name}" for name in names if name != last)
        for folder in ("data", "index"):
            self.storage.remove_folder(folder)

    def now_ms(self) -> float:
        """By the log's clock."""
        return self._now_ms()

    def reload(self) -> None:
        """Read the newest snapshot: what was known in memory is known in files."""
        fresh = load(self.storage, self.incarnation)
        with self._lock:
            self._state = fresh
            self._refresh(ended=True)

    def _refresh(self, *, ended: bool = False) -> State:
        """Apply what others have published."""
        state = self._state
        while True:
            version = state.version + 1 + len(state.void)
            name = record_name(version)
            try:
                data = self.storage.read(name)
            except FileNotFoundError:
                if self._overtaken(state):
                    state = self._state = load(self.storage, self.incarnation)
                    continue
                break
            place = f"{self.storage.location}/{name}"
            try:
                record = Record.decode(data, place)
            except CorruptData:
                log.warning("%s is torn: an epoch that was not synced is lost", place)
                state.void.append(version)
                continue
            state.apply(record, len(data))
        if state.deleted and not ended:
            raise self._gone()
        return state

    def _overtaken(self, state: State) -> bool:
        """Whether old records were removed, the one behind ours among them.

        The oldest go first: while our own is there, the next one was never removed.
        """
        try:
            self.storage.size(record_name(state.version))
        except FileNotFoundError:
            return bool(self.storage.names("log")) or self._vanished()
        return False

    def _vanished(self) -> bool:
        raise self._gone()

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
