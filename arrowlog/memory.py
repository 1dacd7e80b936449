"""The log in the memory of one process: no files, the same contract."""

from __future__ import annotations

import threading
import time
import uuid
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

import pyarrow as pa

from streamfactory.arrowlog.checks import (
    MOST_PARTITIONS,
    NO_TOPIC_REMEDY,
    check_schema,
    fenced,
)
from streamfactory.arrowlog.log import (
    LaneBounds,
    Log,
    LogSlice,
    LogStage,
    LogStore,
    Retention,
    Staged,
    no_such_partition,
)
from streamfactory.spi import (
    LastCommit,
    MisuseError,
    OffsetOutOfRange,
    Partition,
    TopicNotFound,
    Verification,
    WriterFenced,
)

if TYPE_CHECKING:
    from collections.abc import (
        Callable,
        Collection,
        Mapping,
        MutableMapping,
        Sequence,
    )

    from streamfactory.spi import Position, Summary


_STAGED_MILLIS: Final = 24 * 3600 * 1000
"""How long sealed rows wait for a decision: longer than any epoch takes."""


@dataclass(frozen=True, slots=True)
class _Chunk:
    base: int
    rows: pa.RecordBatch
    appended_ms: int
    """The running maximum: the clock may go back, and bisection needs order."""
    size: int


@dataclass(slots=True)
class _Lane:
    earliest: int = 0
    latest: int = 0
    chunks: list[_Chunk] = field(default_factory=list)
    bases: list[int] = field(default_factory=list)
    """Of the chunks: what bisection needs."""

    def append(self, rows: pa.RecordBatch, now_ms: int) -> None:
        if self.chunks:
            now_ms = max(now_ms, self.chunks[-1].appended_ms)
        self.chunks.append(_Chunk(self.latest, rows, now_ms, rows.nbytes))
        self.bases.append(self.latest)
        self.latest += rows.num_rows

    def kept_from(self, retention: Retention, now_ms: float) -> int:
        """The first offset that retention keeps."""
        first = self.earliest
        if retention.rows is not None:
            first = max(first, self.latest - retention.rows)
        if retention.age is not None:
            oldest = now_ms - retention.age * 1000
            first = max(first, self.offset_at(oldest) or 0)
            if self.chunks and self.chunks[-1].appended_ms < oldest:
                first = self.latest
        if retention.size is not None:
            first = max(first, self._newest(retention.size))
        return first

    def _newest(self, size: int) -> int:
        """The first offset of the newest rows of so many bytes."""
        at = self.latest
        for chunk in reversed(self.chunks):
            if chunk.size > size:
                fitting: int = size * chunk.rows.num_rows // chunk.size
                return at - fitting
            size -= chunk.size
            at = chunk.base
        return at

    def offset_at(self, timestamp_ms: float) -> int | None:
        """The first offset appended at or after a time."""
        index = bisect_left(self.chunks, timestamp_ms, key=lambda c: c.appended_ms)
        if index == len(self.chunks):
            return None
        return max(self.chunks[index].base, self.earliest)

    def truncate(self, before: int) -> None:
        self.earliest = max(self.earliest, min(before, self.latest))
        gone = bisect_right(self.bases, self.earliest) - 1
        if self.earliest == self.latest:
            gone = len(self.chunks)
        if gone > 0:
            del self.chunks[:gone], self.bases[:gone]


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
        self._lanes = [_Lane() for _ in range(partitions)]
        self._writers: dict[str, _Writer] = {}
        self._staged: dict[str, _Sealed] = {}
        self._changed = threading.Condition()
        self._deleted = False
        self._now_ms = clock or _wall_clock

    def bounds(self) -> Sequence[LaneBounds]:
        with self._changed:
            self._check_there()
            return [self._bounds(number) for number in range(len(self._lanes))]

    def read(
        self, partition: int, start: int, *, max_rows: int, max_bytes: int
    ) -> LogSlice:
        with self._changed:
            self._check_there()
            lane = self._lane(partition)
            bounds = self._bounds(partition)
            if not lane.earliest <= start <= lane.latest:
                msg = (
                    f"the log has offsets {lane.earliest} to {lane.latest}, not {start}"
                )
                raise OffsetOutOfRange(
                    msg,
                    earliest=lane.earliest,
                    latest=lane.latest,
                    partition=Partition(self.name, partition),
                    offset=start,
                )
            if start == lane.latest:
                return LogSlice(None, start, bounds)
            chunk = lane.chunks[bisect_right(lane.bases, start) - 1]
        skip = start - chunk.base
        count = min(chunk.rows.num_rows - skip, max_rows)
        if chunk.size > max_bytes:
            fitting = max_bytes * chunk.rows.num_rows // chunk.size
            count = min(count, max(1, fitting))
        if count == chunk.rows.num_rows:
            return LogSlice(chunk.rows, start, bounds, chunk.size)
        size = chunk.size * count // chunk.rows.num_rows
        return LogSlice(chunk.rows.slice(skip, count), start, bounds, size)

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

    def stage(self, attempt: str) -> LogStage:
        return _MemoryStage(self, attempt)

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
        with self._changed:
            self._check_there()
            attempts = dict.fromkeys(one.attempt for one in staged)
            known = None if writer is None else self._writers.get(writer)
            if known is not None and known.last and epoch <= known.last.epoch:
                for attempt in attempts:
                    self._staged.pop(attempt, None)
                return known.last
            if known is not None and known.owner != instance:
                raise WriterFenced(fenced(writer, epoch))
            missing = [attempt for attempt in attempts if attempt not in self._staged]
            if missing:
                msg = f"what attempt {missing[0]} staged no longer exists"
                raise MisuseError(msg, remedy="write the epoch again")
            if replace:
                for lane in self._lanes:
                    lane.truncate(lane.latest)
            now = self._now_ms()
            before = [lane.latest for lane in self._lanes]
            for attempt in attempts:
                for partition, rows in self._staged.pop(attempt).rows:
                    self._lanes[partition].append(rows, int(now))
            if placed is not None:
                ends = enumerate(zip(before, self._lanes, strict=True))
                spans = {n: range(base, lane.latest) for n, (base, lane) in ends}
                placed.update({n: span for n, span in spans.items() if span})
            if writer is not None:
                last = LastCommit(epoch, source_position, summary)
                self._writers[writer] = _Writer(instance, last, now)
            self._changed.notify_all()
            return None

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
                msg = f"{self.name!r} has at most {MOST_PARTITIONS} partitions"
                raise MisuseError(msg)
            more = partitions - len(self._lanes)
            if more < 0:
                msg = f"{self.name!r} has {len(self._lanes)} partitions, never fewer"
                raise MisuseError(msg)
            self._lanes += [_Lane() for _ in range(more)]

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
        """Keep what a stage sealed, and sweep what nobody decided."""
        with self._changed:
            self._check_there()
            now = self._now_ms()
            oldest = now - _STAGED_MILLIS
            self._staged = {a: s for a, s in self._staged.items() if s.at_ms >= oldest}
            self._staged[attempt] = _Sealed(rows, now)

    def mark_deleted(self) -> None:
        """Fail whoever still uses the topic, and let go of what it held."""
        with self._changed:
            self._deleted = True
            self._staged.clear()
            for lane in self._lanes:
                lane.truncate(lane.latest)
            self._changed.notify_all()

    def check_partition(self, partition: int) -> None:
        """Refuse a partition that is not there."""
        with self._changed:
            self._lane(partition)

    def _lane(self, partition: int) -> _Lane:
        if not 0 <= partition < len(self._lanes):
            raise no_such_partition(self.name, partition, len(self._lanes))
        return self._lanes[partition]

    def _bounds(self, partition: int) -> LaneBounds:
        lane = self._lanes[partition]
        return LaneBounds(partition, lane.earliest, lane.latest)

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


@final
class MemoryLogStore(LogStore):
    """Topics in the memory of this process.

    Args:
        clock: Answers milliseconds since the epoch; for all topics.
    """

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self._logs: dict[str, MemoryLog] = {}
        self._lock = threading.Lock()
        self._clock = clock

    def create(self, name: str, schema: pa.Schema, partitions: int = 1) -> MemoryLog:
        if not 1 <= partitions <= MOST_PARTITIONS:
            msg = f"a topic has 1 to {MOST_PARTITIONS} partitions, not {partitions}"
            raise MisuseError(msg)
        with self._lock:
            if name in self._logs:
                msg = f"there is a topic {name!r} already"
                raise MisuseError(msg, remedy="open it, or delete it first")
            self._logs[name] = MemoryLog(name, schema, partitions, self._clock)
            return self._logs[name]

    def open(self, name: str) -> MemoryLog:
        with self._lock:
            return self._found(name)

    def delete(self, name: str) -> None:
        with self._lock:
            log = self._found(name)
            del self._logs[name]
        log.mark_deleted()

    def names(self) -> Sequence[str]:
        with self._lock:
            return sorted(self._logs)

    def _found(self, name: str) -> MemoryLog:
        if name not in self._logs:
            known = ", ".join(sorted(self._logs)) or "none"
            msg = f"there is no topic {name!r} in memory; there are: {known}"
            raise TopicNotFound(msg, remedy=NO_TOPIC_REMEDY)
        return self._logs[name]
