"""One topic in the memory of a process."""

from __future__ import annotations

import threading
import time
import uuid
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import pyarrow as pa

from streamfactory.arrowlog.checks import (
    MOST_PARTITIONS,
    check_owner,
    check_schema,
    no_such_partition,
)
from streamfactory.arrowlog.log import Log, LogStage
from streamfactory.arrowlog.memory_partition import MemoryPartition
from streamfactory.arrowlog.values import (
    Committed,
    LogSlice,
    PartitionBounds,
    Retention,
    Staged,
)
from streamfactory.spi import (
    LastCommit,
    MisuseError,
    OffsetOutOfRange,
    Partition,
    TopicNotFound,
    Verification,
)

if TYPE_CHECKING:
    from collections.abc import (
        Callable,
        Collection,
        Mapping,
        Sequence,
    )

    from streamfactory.arrowlog.values import Epoch


_STAGED_MILLIS: Final = 24 * 3600 * 1000
"""Milliseconds after which sealed rows are abandoned: longer than any epoch takes."""


@dataclass(slots=True)
class _Writer:
    owner: str
    last: LastCommit | None
    at_ms: float


@dataclass(frozen=True, slots=True)
class _Sealed:
    rows: Sequence[tuple[int, pa.RecordBatch]]
    at_ms: float


@final
class MemoryLog(Log):
    """One topic in memory.

    Args:
        name: Of the topic.
        schema: Of its rows.
        partitions: How many, at first.
        clock: Answers milliseconds since the epoch; the append time.
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
        self.incarnation = uuid.uuid4().hex
        self._lanes = [MemoryPartition() for _ in range(partitions)]
        self._writers: dict[str, _Writer] = {}
        self._staged: dict[str, _Sealed] = {}
        self._changed = threading.Condition()
        self._deleted = False
        self._now_ms = clock or _wall_clock

    def bounds(self) -> Sequence[PartitionBounds]:
        with self._changed:
            self._check_there()
            return [self._bounds(number) for number in range(len(self._lanes))]

    def read(
        self, partition: int, start: int, *, max_rows: int, max_bytes: int
    ) -> LogSlice:
        with self._changed:
            lane, at = self._located(partition, start)
            bounds = self._bounds(partition)
            if at is None:
                return LogSlice(None, start, bounds)
            chunk = lane.chunks[at]
        rows, size = chunk.part(start, max_rows, max_bytes)
        return LogSlice(rows, start, bounds, size)

    def read_run(
        self, partition: int, start: int, *, max_rows: int, max_bytes: int
    ) -> Sequence[LogSlice]:
        with self._changed:
            lane, at = self._located(partition, start)
            bounds = self._bounds(partition)
            if at is None:
                return [LogSlice(None, start, bounds)]
            run: list[LogSlice] = []
            while at < len(lane.chunks) and max_rows > 0 and max_bytes > 0:
                rows, size = lane.chunks[at].part(start, max_rows, max_bytes)
                run.append(LogSlice(rows, start, bounds, size))
                start, at = start + rows.num_rows, at + 1
                if start != lane.chunks[at - 1].end:
                    break  # a part of a batch: the limits are reached
                max_rows, max_bytes = max_rows - rows.num_rows, max_bytes - size
            return run

    def _located(
        self, partition: int, start: int
    ) -> tuple[MemoryPartition, int | None]:
        """The lane, and which of its chunks has an offset; with the lock held."""
        self._check_there()
        lane = self._lane(partition)
        if not lane.earliest <= start <= lane.latest:
            msg = (
                f"offset {start} is out of range: available are {lane.earliest} to "
                f"{lane.latest}"
            )
            raise OffsetOutOfRange(
                msg,
                earliest=lane.earliest,
                latest=lane.latest,
                partition=Partition(self.name, partition),
                offset=start,
            )
        if start == lane.latest:
            return lane, None
        return lane, bisect_right(lane.bases, start) - 1

    def wait(
        self,
        partition: int,
        offset: int,
        timeout: float,
        cancelled: threading.Event | None = None,
    ) -> bool:
        with self._changed:
            lane = self._lane(partition)

            def over() -> bool:
                gone = self._deleted or (cancelled is not None and cancelled.is_set())
                return gone or lane.latest > offset

            self._changed.wait_for(over, timeout)
            return lane.latest > offset

    def wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def offsets_at(
        self, timestamp_ms: int, partitions: Collection[int]
    ) -> Mapping[int, int | None]:
        with self._changed:
            self._check_there()
            return {
                number: self._lane(number).offset_at(timestamp_ms)
                for number in partitions
            }

    def stage(self, attempt: str, *, validated: bool = False) -> LogStage:
        return _MemoryStage(self, attempt)

    def commit(self, epoch: Epoch) -> Committed:
        attempts = [one.attempt for one in epoch.attempts]
        with self._changed:
            self._check_there()
            known = None if epoch.writer is None else self._writers.get(epoch.writer)
            check_owner(epoch, None if known is None else known.owner)
            if known and known.last and epoch.number <= known.last.epoch:
                for attempt in attempts:
                    self._staged.pop(attempt, None)
                return Committed(known.last)
            missing = [attempt for attempt in attempts if attempt not in self._staged]
            if missing:
                msg = f"what attempt {missing[0]} staged no longer exists"
                raise MisuseError(msg, remedy="abort the epoch and write it again")
            if epoch.replace:
                for lane in self._lanes:
                    lane.truncate(lane.latest)
            now = self._now_ms()
            placed = self._append(attempts, int(now))
            if epoch.writer is not None:
                last = LastCommit(epoch.number, epoch.position, epoch.summary)
                self._writers[epoch.writer] = _Writer(epoch.instance, last, now)
            self._changed.notify_all()
            return Committed(placed=placed)

    def _append(self, attempts: Sequence[str], now: int) -> Mapping[int, range]:
        """Append staged rows, and return their offsets by partition."""
        before = [lane.latest for lane in self._lanes]
        for attempt in attempts:
            for partition, rows in self._staged.pop(attempt).rows:
                self._lanes[partition].append(rows, now)
        ends = enumerate(zip(before, self._lanes, strict=True))
        spans = {number: range(base, lane.latest) for number, (base, lane) in ends}
        return {number: span for number, span in spans.items() if span}

    def claim(self, writer: str, instance: str) -> LastCommit | None:
        with self._changed:
            self._check_there()
            known = self._writers.get(writer)
            last = None if known is None else known.last
            self._writers[writer] = _Writer(instance, last, self._now_ms())
            return last

    def last(self, writer: str) -> LastCommit | None:
        with self._changed:
            self._check_there()
            found = self._writers.get(writer)
            return None if found is None else found.last

    def owner(self, writer: str) -> str | None:
        with self._changed:
            self._check_there()
            known = self._writers.get(writer)
            return None if known is None else known.owner

    def writers(self) -> Mapping[str, LastCommit]:
        with self._changed:
            self._check_there()
            found = {name: known.last for name, known in self._writers.items()}
        return {name: last for name, last in found.items() if last is not None}

    def forget(self, idle: float, keep: str | None = None) -> None:
        with self._changed:
            oldest = self._now_ms() - idle * 1000
            self._writers = {
                writer: entry
                for writer, entry in self._writers.items()
                if entry.at_ms >= oldest or writer == keep
            }

    def grow(self, partitions: int) -> None:
        with self._changed:
            self._check_there()
            if partitions > MOST_PARTITIONS:
                msg = (
                    f"topic {self.name!r} can have at most {MOST_PARTITIONS} partitions"
                )
                raise MisuseError(msg)
            more = partitions - len(self._lanes)
            if more < 0:
                msg = (
                    f"topic {self.name!r} has {len(self._lanes)} partitions, "
                    f"and cannot have fewer"
                )
                raise MisuseError(msg)
            self._lanes += [MemoryPartition() for _ in range(more)]

    def truncate(self, before: Mapping[int, int]) -> None:
        with self._changed:
            self._check_there()
            for partition, offset in before.items():
                self._lane(partition).truncate(offset)

    def retain(self, retention: Retention, hold: Mapping[int, int]) -> None:
        with self._changed:
            self._check_there()
            now = self._now_ms()
            for number, lane in enumerate(self._lanes):
                before = lane.kept_from(retention, now)
                lane.truncate(min(before, hold.get(number, before)))

    def verify(self) -> Verification:
        with self._changed:
            self._check_there()
            rows = sum(lane.latest - lane.earliest for lane in self._lanes)
            chunks = [(n, c) for n, lane in enumerate(self._lanes) for c in lane.chunks]
        problems = []
        for partition, chunk in chunks:
            try:
                chunk.rows.validate(full=True)
            except pa.ArrowInvalid as error:
                where = f"partition {partition}, offset {chunk.base}"
                problems.append(f"{where}: {error}")
        return Verification(rows, tuple(problems))

    def discard(self, staged: Staged) -> None:
        with self._changed:
            self._staged.pop(staged.attempt, None)

    def put_staged(
        self, attempt: str, rows: Sequence[tuple[int, pa.RecordBatch]]
    ) -> None:
        """Store the sealed rows of a stage, and remove abandoned ones."""
        with self._changed:
            self._check_there()
            now = self._now_ms()
            oldest = now - _STAGED_MILLIS
            self._staged = {a: s for a, s in self._staged.items() if s.at_ms >= oldest}
            self._staged[attempt] = _Sealed(rows, now)

    def mark_deleted(self) -> None:
        """Make all further calls of the topic fail, and release its rows."""
        with self._changed:
            self._deleted = True
            self._staged.clear()
            for lane in self._lanes:
                lane.truncate(lane.latest)
            self._changed.notify_all()

    def check_partition(self, partition: int) -> None:
        """Refuse a partition that does not exist."""
        with self._changed:
            self._lane(partition)

    def _lane(self, partition: int) -> MemoryPartition:
        if not 0 <= partition < len(self._lanes):
            raise no_such_partition(self.name, partition, len(self._lanes))
        return self._lanes[partition]

    def _bounds(self, partition: int) -> PartitionBounds:
        lane = self._lanes[partition]
        return PartitionBounds(partition, lane.earliest, lane.latest)

    def _check_there(self) -> None:
        if self._deleted:
            msg = f"the topic {self.name!r} was deleted"
            raise TopicNotFound(msg)


class _MemoryStage(LogStage):
    def __init__(self, log: MemoryLog, attempt: str) -> None:
        self._log = log
        self._attempt = attempt
        self._rows: list[tuple[int, pa.RecordBatch]] = []

    def append(self, partition: int, rows: pa.RecordBatch) -> None:
        check_schema(rows, self._log.schema)
        self._log.check_partition(partition)
        if rows.num_rows:
            self._rows.append((partition, rows))

    def seal(self) -> Staged:
        self._log.put_staged(self._attempt, tuple(self._rows))
        self._rows = []
        return Staged(self._attempt)

    def discard(self) -> None:
        self._rows = []


def _wall_clock() -> float:
    return time.time() * 1000
