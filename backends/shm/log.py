"""One topic in shared memory, as a log: what readers and writers of it do."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, final

import pyarrow as pa

from streamfactory import arrowipc as ipc
from streamfactory.arrowlog.checks import (
    MOST_PARTITIONS,
    check_growth,
    check_range,
    no_such_partition,
)
from streamfactory.arrowlog.clocks import LogClock
from streamfactory.arrowlog.log import Log
from streamfactory.arrowlog.values import LogSlice, PartitionBounds
from streamfactory.arrowlog.writers import idle_writers
from streamfactory.backends.shm.appending import Appender
from streamfactory.backends.shm.control import Control
from streamfactory.backends.shm.layout import (
    BLOCKS,
    LEASE_ENTRIES,
    READING,
    Damaged,
    Part,
)
from streamfactory.backends.shm.leases import dead_leases, held_by_all
from streamfactory.backends.shm.left import left_folders, remove_left
from streamfactory.backends.shm.locking import WriterLock
from streamfactory.backends.shm.reader import RingReader
from streamfactory.backends.shm.ring import create_ring, ring_name
from streamfactory.backends.shm.staging import ShmStage, staged_bytes, sweep
from streamfactory.spi import (
    BatchValidator,
    CorruptData,
    MisuseError,
    StorageFailed,
    StreamError,
    TopicNotFound,
)
from streamfactory.spi.topics import LEFT_OVER

if TYPE_CHECKING:
    import threading
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from streamfactory.arrowlog.disk.records import WriterState
    from streamfactory.arrowlog.values import Committed, Epoch, Staged
    from streamfactory.backends.shm.layout import State
    from streamfactory.backends.shm.settings import Settings
    from streamfactory.spi import LastCommit

_SLICE: Final = 0.05
"""Seconds of one wait: what cancels it may come between the look and the wait."""
_TRIES: Final = 1000
"""Reads that meet a writer which overwrites what they read."""


@final
class ShmLog(Log):
    """One topic in a folder of shared memory.

    Args:
        name: Of the topic.
        folder: Its folder.
        settings: Of this process.

    Raises:
        FileNotFoundError: There is no such topic.
        CorruptData: data_loss; its files are not of the format.
    """

    def __init__(self, name: str, folder: Path, settings: Settings) -> None:
        self.name = name
        self.folder = folder
        self._whole = _Translated(self)
        with self._whole:
            self._control = Control(folder)
        self.schema = self._control.schema
        self.validator = BatchValidator(self.schema)
        self.incarnation = self._control.incarnation.hex()
        self._lock = WriterLock(folder, settings.patience)
        self._reader = RingReader(folder, self._control, self.schema, settings)
        self._appender = Appender(folder, self._control, self._reader, settings)
        self._clock = LogClock(name)
        self._bounds: tuple[State, Sequence[PartitionBounds]] | None = None

    @property
    def is_gone(self) -> bool:
        """Whether the topic was deleted, or its files were removed."""
        return self._control.is_gone or self._control.is_unlinked

    @property
    def blocks(self) -> bool:
        """Whether its writers wait for its readers."""
        return bool(self._control.flags & BLOCKS)

    def close(self) -> None:
        """Close all files. Batches that are held stay valid."""
        self._reader.close()
        self._lock.close()
        self._control.close()

    # --- reading ----------------------------------------------------------------------

    def bounds(self) -> Sequence[PartitionBounds]:
        state = self._state()
        known = self._bounds
        if known is not None and known[0] is state:
            return known[1]
        found = [
            PartitionBounds(number, part.earliest, part.latest)
            for number, part in enumerate(state.parts)
        ]
        self._bounds = state, found
        return found

    def read(
        self, partition: int, start: int, *, max_rows: int, max_bytes: int
    ) -> LogSlice:
        for _ in range(_TRIES):
            part = self._part(self._state(), partition)
            bounds = PartitionBounds(partition, part.earliest, part.latest)
            check_range(self.name, bounds, start)
            if start == part.latest:
                return LogSlice(None, start, bounds)
            with self._whole:
                found = self._reader.read(partition, part, start)
            if found is not None:
                rows, size, base = found
                return _sliced(rows, size, base, start, bounds, max_rows, max_bytes)
        msg = f"offset {start} of topic {self.name!r} is overwritten while it is read"
        raise CorruptData(msg, remedy="raise the capacity of the topic")

    def begin_reading(self, partition: int) -> int | None:
        """Register a reader, which needs all rows for now; None where none is needed.

        Returns:
            What `move_reading` and `end_reading` take.

        Raises:
            MisuseError: misuse; all leases of this process are in use. Writers would
                not wait for the reader.
        """
        if not self.blocks:
            return None
        part = self._part(self._state(), partition)
        entry = self._reader.leases.add(READING, partition, part.tail)
        if entry is None:
            msg = f"topic {self.name!r}: partition {partition} cannot be read: this "
            msg += f"process has {LEASE_ENTRIES} readers and batches of it in use"
            remedy = "release batches, or read with read.mode=copy"
            raise MisuseError(msg, remedy=remedy)
        return entry

    def move_reading(self, entry: int, partition: int, start: int) -> None:
        """Say from which offset on a reader needs rows."""
        part = self._part(self._state(), partition)
        with self._whole:
            position = self._reader.position(partition, part, start)
        self._reader.leases.move(entry, position)
        self._control.word.wake()  # a writer may wait for it

    def end_reading(self, entry: int) -> None:
        """Remove a reader."""
        self._reader.leases.remove(entry)
        self._control.word.wake()

    def wait(
        self,
        partition: int,
        offset: int,
        timeout: float,
        cancelled: threading.Event | None = None,
    ) -> bool:
        deadline = time.monotonic() + timeout
        while True:
            seen = self._control.word.value
            if self.is_gone:
                return False
            if self._part(self._state(), partition).latest > offset:
                return True
            left = deadline - time.monotonic()
            if left <= 0 or (cancelled is not None and cancelled.is_set()):
                return False
            self._control.word.wait(seen, min(left, _SLICE))

    def wake(self) -> None:
        self._control.word.wake()

    def offsets_at(
        self, timestamp_ms: int, partitions: Collection[int]
    ) -> Mapping[int, int | None]:
        state, found = self._state(), dict[int, int | None]()
        for number in partitions:
            part = self._part(state, number)
            with self._whole:
                at = self._reader.offset_at(number, part, timestamp_ms)
            found[number] = None if at is None else max(at, part.earliest)
        return found

    def sizes(self, partition: int) -> Sequence[tuple[int, int, int]]:
        part = self._part(self._state(), partition)
        with self._whole:
            return self._reader.sizes(partition, part)

    # --- writing ----------------------------------------------------------------------

    def stage(self, attempt: str) -> ShmStage:
        return ShmStage(
            attempt,
            self.validator,
            self.folder,
            self.incarnation,
            self._control.capacity,
            self.check_partition,
        )

    def commit(self, epoch: Epoch) -> Committed:
        with self._writing():
            now = int(self.clock())
            return self._appender.commit(epoch, self.validator, self.incarnation, now)

    def discard(self, staged: Staged) -> None:
        with self._whole:
            self._appender.discard(staged, self.validator, self.incarnation)

    def claim(self, writer: str, instance: str) -> LastCommit | None:
        with self._writing():
            known = self._control.known()
            before = known.writers.get(writer)
            claimed = self._appender.claimed(before, instance, int(self.clock()))
            writers = {**known.writers, writer: claimed}
            self._control.publish(self._state().parts, known._replace(writers=writers))
            return None if before is None else before.last()

    def remembered(self) -> Mapping[str, WriterState]:
        self._state()
        with self._whole:
            return dict(self._control.known().writers)

    def forget(self, idle: float, keep: str | None = None) -> None:
        remembered = self.remembered()
        oldest = self.clock() - idle * 1000
        if not idle_writers(remembered, oldest, keep):
            return
        with self._writing():
            known = self._control.known()
            idle_ones = set(idle_writers(known.writers, oldest, keep))
            left = {n: w for n, w in known.writers.items() if n not in idle_ones}
            self._control.publish(self._state().parts, known._replace(writers=left))

    def grow(self, partitions: int) -> None:
        if partitions > MOST_PARTITIONS:
            msg = f"topic {self.name!r} can have at most {MOST_PARTITIONS} partitions"
            raise MisuseError(msg)
        with self._writing():
            parts = list(self._state().parts)
            check_growth(self.name, len(parts), partitions)
            for number in range(len(parts), partitions):
                path = self.folder / ring_name(number)
                control = self._control
                create_ring(path, number, control.incarnation, control.capacity)
                parts.append(Part(0, 0, 0, 0))
            if len(parts) > len(self._state().parts):
                self._control.publish(parts)

    def truncate(self, before: Mapping[int, int]) -> None:
        with self._writing():
            state = self._state()
            parts = list(state.parts)
            for number, offset in before.items():
                part = self._part(state, number)
                at = min(max(offset, part.earliest), part.latest)
                tail = self._reader.position(number, part, at)
                parts[number] = part._replace(earliest=at, tail=tail)
            if parts != list(state.parts):
                self._control.publish(parts)

    def sweep(self) -> None:
        with self._whole:
            sweep(self.folder)
            for _ in held_by_all(self.folder):  # which removes those of the dead
                pass
            remove_left(self.folder.parent)

    def compact(self) -> None:
        self.sweep()  # a ring is as small as it gets

    def mark_deleted(self) -> None:
        """Make all further calls of the topic fail, in every process."""
        self._control.mark_deleted()

    # --- facts ------------------------------------------------------------------------

    def facts(self) -> Mapping[str, str | int]:
        parts = self._state().parts
        with self._whole:
            return {
                "location": str(self.folder),
                "capacity of each partition": self._control.capacity,
                "when full": "block" if self.blocks else "drop",
                "bytes": sum(part.head - part.tail for part in parts),
                "staged bytes": staged_bytes(self.folder),
                "remembered writer ids": len(self._control.known().writers),
                LEFT_OVER: dead_leases(self.folder)
                + len(left_folders(self.folder.parent)),
            }

    def clock(self) -> float:
        return self._clock.now(self._state().appended_ms)

    def report(self, what: str, instead: str) -> None:
        self._clock.report(what, instead)

    def check_partition(self, partition: int) -> None:
        """Refuse a partition that does not exist."""
        self._part(self._state(), partition)

    def _state(self) -> State:
        if self._control.is_gone:
            msg = f"the topic {self.name!r} was deleted"
            raise TopicNotFound(msg)
        with self._whole:
            return self._control.state()

    def _part(self, state: State, partition: int) -> Part:
        if not 0 <= partition < len(state.parts):
            raise no_such_partition(self.name, partition, len(state.parts))
        return state.parts[partition]

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._whole, self._lock.held():
            self._state()  # which refuses a deleted topic
            yield

    def translate(self, error: BaseException) -> None:
        """Raise what an error of the files of the topic means."""
        if isinstance(error, (Damaged, ipc.NotIpc, ipc.IpcTooLong, pa.ArrowInvalid)):
            msg = f"topic {self.name!r} in shared memory is damaged: {error}"
            remedy = f"delete the folder {self.folder}, and write the topic again"
            raise CorruptData(msg, remedy=remedy) from error
        if isinstance(error, FileNotFoundError) and hasattr(self, "_control"):
            if self.is_gone:
                msg = f"the topic {self.name!r} was deleted"
                raise TopicNotFound(msg) from error
            msg = f"topic {self.name!r} lacks a file: {error}"
            raise CorruptData(msg, remedy=f"delete {self.folder}") from error
        if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
            msg = f"topic {self.name!r} in {self.folder}: {error.strerror or error}"
            remedy = "free memory below the folder, or lower the capacity of topics"
            raise StorageFailed(msg, remedy=remedy) from error


class _Translated:
    """Translates errors of a topic. No generator: every call of a topic passes here."""

    __slots__ = ("_log",)

    def __init__(self, log: ShmLog) -> None:
        self._log = log

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is not None and not isinstance(error, StreamError):
            self._log.translate(error)


def _sliced(
    rows: pa.RecordBatch,
    size: int,
    base: int,
    start: int,
    bounds: PartitionBounds,
    max_rows: int,
    max_bytes: int,
) -> LogSlice:
    """The rows of a record from an offset on, up to the limits; at least one."""
    whole: int = rows.num_rows
    skip = start - base
    count = min(whole - skip, max_rows)
    if size > max_bytes:
        count = min(count, max(1, max_bytes * whole // size))
    if count == whole:
        return LogSlice(rows, start, bounds, size)
    return LogSlice(rows.slice(skip, count), start, bounds, size * count // whole)
