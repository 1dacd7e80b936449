"""One topic in the memory of a process."""

from __future__ import annotations

import threading
import uuid
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from streamfactory.arrowlog.checks import (
    MOST_PARTITIONS,
    check_growth,
    check_range,
    check_schema,
    no_such_partition,
)
from streamfactory.arrowlog.clocks import LogClock
from streamfactory.arrowlog.log import Log
from streamfactory.arrowlog.memory_partition import MemoryPartition
from streamfactory.arrowlog.stages import SoundStage
from streamfactory.arrowlog.values import (
    Committed,
    LogSlice,
    PartitionBounds,
    Staged,
)
from streamfactory.arrowlog.writers import committed_before, idle_writers
from streamfactory.conversion.arrays import unshared
from streamfactory.spi import (
    BatchValidator,
    LastCommit,
    MisuseError,
    TopicNotFound,
)

if TYPE_CHECKING:
    from collections.abc import (
        Callable,
        Collection,
        Mapping,
        Sequence,
    )

    import pyarrow as pa

    from streamfactory.arrowlog.values import Epoch
    from streamfactory.arrowlog.writers import RememberedWriter
    from streamfactory.spi import SoundRows


_STAGED_MILLIS: Final = 24 * 3600 * 1000
"""Milliseconds after which sealed rows are abandoned: longer than any epoch takes."""


@dataclass(frozen=True, slots=True)
class _Writer:
    owner: str
    at: float
    commit: LastCommit | None

    @property
    def epoch(self) -> int | None:
        return None if self.commit is None else self.commit.epoch

    def last(self) -> LastCommit | None:
        return self.commit


@dataclass(frozen=True, slots=True)
class _Sealed:
    rows: Sequence[tuple[int, SoundRows]]
    at_ms: float


@final
class MemoryLog(Log):
    """One topic in memory.

    Args:
        name: Of the topic.
        schema: Of its rows.
        partitions: How many, at first.
        clock: Answers milliseconds since the epoch; the append time.

    Raises:
        SchemaMismatch: permanent; the schema has an unsupported type.
    """

    def __init__(
        self,
        name: str,
        schema: pa.Schema,
        partitions: int = 1,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.name = name
        self.schema = schema.remove_metadata()
        self.validator = BatchValidator(self.schema)
        self.incarnation = uuid.uuid4().hex
        self._partitions = [MemoryPartition() for _ in range(partitions)]
        self._writers: dict[str, _Writer] = {}
        self._staged: dict[str, _Sealed] = {}
        self._changed = threading.Condition()
        self._deleted = False
        self._clock = LogClock(name, clock)
        self._appended_ms = 0
        """Time of the last commit."""

    def bounds(self) -> Sequence[PartitionBounds]:
        with self._changed:
            self._check_there()
            return [self._bounds(number) for number in range(len(self._partitions))]

    def read(
        self, partition: int, start: int, *, max_rows: int, max_bytes: int
    ) -> LogSlice:
        with self._changed:
            stored, at = self._located(partition, start)
            bounds = self._bounds(partition)
            if at is None:
                return LogSlice(None, start, bounds)
            chunk = stored.chunks[at]
        rows, size = chunk.part(start, max_rows, max_bytes)
        return LogSlice(rows, start, bounds, size)

    def read_run(
        self, partition: int, start: int, *, max_rows: int, max_bytes: int
    ) -> Sequence[LogSlice]:
        with self._changed:
            stored, at = self._located(partition, start)
            bounds = self._bounds(partition)
            if at is None:
                return [LogSlice(None, start, bounds)]
            run: list[LogSlice] = []
            while at < len(stored.chunks) and max_rows > 0 and max_bytes > 0:
                rows, size = stored.chunks[at].part(start, max_rows, max_bytes)
                run.append(LogSlice(rows, start, bounds, size))
                start, at = start + rows.num_rows, at + 1
                if start != stored.chunks[at - 1].end:
                    break  # a part of a batch: the limits are reached
                max_rows, max_bytes = max_rows - rows.num_rows, max_bytes - size
            return run

    def _located(
        self, partition: int, start: int
    ) -> tuple[MemoryPartition, int | None]:
        """The partition, and which of its chunks has an offset; with the lock held."""
        self._check_there()
        stored = self._partition(partition)
        check_range(self.name, self._bounds(partition), start)
        if start == stored.latest:
            return stored, None
        return stored, bisect_right(stored.bases, start) - 1

    def wait(
        self,
        partition: int,
        offset: int,
        timeout: float,
        cancelled: threading.Event | None = None,
    ) -> bool:
        with self._changed:
            stored = self._partition(partition)

            def over() -> bool:
                gone = self._deleted or (cancelled is not None and cancelled.is_set())
                return gone or stored.latest > offset

            self._changed.wait_for(over, timeout)
            return stored.latest > offset

    def wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def offsets_at(
        self, timestamp_ms: int, partitions: Collection[int]
    ) -> Mapping[int, int | None]:
        with self._changed:
            self._check_there()
            return {
                number: self._partition(number).offset_at(timestamp_ms)
                for number in partitions
            }

    def stage(self, attempt: str) -> SoundStage:
        return _MemoryStage(self, attempt)

    def commit(self, epoch: Epoch) -> Committed:
        attempts = [one.attempt for one in epoch.attempts]
        with self._changed:
            self._check_there()
            known = None if epoch.writer is None else self._writers.get(epoch.writer)
            held = committed_before(epoch, known)
            if held is not None:
                for attempt in attempts:
                    self._staged.pop(attempt, None)
                return Committed(held)
            missing = [attempt for attempt in attempts if attempt not in self._staged]
            if missing:
                msg = f"what attempt {missing[0]} staged no longer exists"
                raise MisuseError(msg, remedy="abort the epoch and write it again")
            if epoch.replace:
                for stored in self._partitions:
                    stored.truncate(stored.latest)
            now = self.clock()
            placed = self._append(attempts, int(now))
            if epoch.writer is not None:
                last = LastCommit(epoch.number, epoch.position, epoch.summary)
                self._writers[epoch.writer] = _Writer(epoch.instance, now, last)
            self._changed.notify_all()
            return Committed(placed=placed)

    def _append(self, attempts: Sequence[str], now: int) -> Mapping[int, range]:
        """Append staged rows, and return their offsets by partition."""
        self._appended_ms = max(now, self._appended_ms)
        before = [stored.latest for stored in self._partitions]
        for attempt in attempts:
            for partition, rows in self._staged.pop(attempt).rows:
                self._partitions[partition].append(rows, now)
        ends = enumerate(zip(before, self._partitions, strict=True))
        spans = {number: range(base, stored.latest) for number, (base, stored) in ends}
        return {number: span for number, span in spans.items() if span}

    def claim(self, writer: str, instance: str) -> LastCommit | None:
        with self._changed:
            self._check_there()
            known = self._writers.get(writer)
            last = None if known is None else known.last()
            self._writers[writer] = _Writer(instance, self.clock(), last)
            return last

    def remembered(self) -> Mapping[str, RememberedWriter]:
        with self._changed:
            self._check_there()
            return dict(self._writers)

    def forget(self, idle: float, keep: str | None = None) -> None:
        with self._changed:
            oldest = self.clock() - idle * 1000
            for writer in idle_writers(self._writers, oldest, keep):
                del self._writers[writer]

    def grow(self, partitions: int) -> None:
        with self._changed:
            self._check_there()
            if partitions > MOST_PARTITIONS:
                msg = (
                    f"topic {self.name!r} can have at most {MOST_PARTITIONS} partitions"
                )
                raise MisuseError(msg)
            check_growth(self.name, len(self._partitions), partitions)
            more = partitions - len(self._partitions)
            self._partitions += [MemoryPartition() for _ in range(more)]

    def truncate(self, before: Mapping[int, int]) -> None:
        with self._changed:
            self._check_there()
            for partition, offset in before.items():
                self._partition(partition).truncate(offset)

    def sizes(self, partition: int) -> Sequence[tuple[int, int, int]]:
        with self._changed:
            chunks = self._partition(partition).chunks
            return [(chunk.base, chunk.end, chunk.size) for chunk in chunks]

    def clock(self) -> float:
        return self._clock.now(self._appended_ms)

    def report(self, what: str, instead: str) -> None:
        self._clock.report(what, instead)

    def discard(self, staged: Staged) -> None:
        with self._changed:
            self._staged.pop(staged.attempt, None)

    def put_staged(self, attempt: str, rows: Sequence[tuple[int, SoundRows]]) -> None:
        """Store the sealed rows of a stage, and remove abandoned ones."""
        with self._changed:
            self._check_there()
            now = self.clock()
            oldest = now - _STAGED_MILLIS
            self._staged = {a: s for a, s in self._staged.items() if s.at_ms >= oldest}
            self._staged[attempt] = _Sealed(rows, now)

    def mark_deleted(self) -> None:
        """Make all further calls of the topic fail, and release its rows."""
        with self._changed:
            self._deleted = True
            self._staged.clear()
            for stored in self._partitions:
                stored.truncate(stored.latest)
            self._changed.notify_all()

    def check_partition(self, partition: int) -> None:
        """Refuse a partition that does not exist."""
        with self._changed:
            self._partition(partition)

    def _partition(self, partition: int) -> MemoryPartition:
        if not 0 <= partition < len(self._partitions):
            raise no_such_partition(self.name, partition, len(self._partitions))
        return self._partitions[partition]

    def _bounds(self, partition: int) -> PartitionBounds:
        stored = self._partitions[partition]
        return PartitionBounds(partition, stored.earliest, stored.latest)

    def _check_there(self) -> None:
        if self._deleted:
            msg = f"the topic {self.name!r} was deleted"
            raise TopicNotFound(msg)


class _MemoryStage(SoundStage):
    def __init__(self, log: MemoryLog, attempt: str) -> None:
        super().__init__(log.validator)
        self._log = log
        self._attempt = attempt
        self._rows: list[tuple[int, SoundRows]] = []

    def append_sound(self, partition: int, rows: SoundRows) -> None:
        check_schema(rows.batch, self._log.schema)
        self._log.check_partition(partition)
        if rows.num_rows:
            # They outlive the call, and the memory may be the caller's.
            kept = unshared(rows.batch)
            if kept is not rows.batch:  # which may have changed since it was validated
                rows = self._validator.validated(kept)
            self._rows.append((partition, rows))

    def seal(self, *, carried: bool = False) -> Staged:
        self._log.put_staged(self._attempt, tuple(self._rows))
        self._rows = []
        return Staged(self._attempt)

    def discard(self) -> None:
        self._rows = []
