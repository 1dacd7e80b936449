"""Bounded queues between producers and one reader: the default of a push table."""

from __future__ import annotations

import enum
import threading
import weakref
from functools import partial
from typing import TYPE_CHECKING, Final, final

from streamfactory.push.queues import LaneQueue
from streamfactory.push.reading_state import (
    ReadingEvent,
    ReadingState,
    after,
    read_once,
)
from streamfactory.push.store import (
    AsyncScan,
    PushStatistics,
    PushStore,
    StopPushing,
    closed_error,
    producer_failed,
)
from streamfactory.push.waiting import Gate
from streamfactory.spi import (
    ClosedError,
    End,
    Failed,
    Finished,
    MisuseError,
    ReaderFailed,
    ReaderFinished,
    StreamTimeout,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from streamfactory.push.merging import Merge

_RECHECK: Final = 0.005
"""Seconds after which a producer that waits takes room which is less than a half of the
capacity: to be woken for each batch would cost two switches of threads for each."""
_NO_ROOM: Final = "the reader of the push table has not made room"
_NO_ROWS: Final = "no batch was pushed into the table"


class _Turn(enum.Enum):
    """What a reader finds when it looks at the queues, unless it waits on."""

    ROWS = enum.auto()
    END = enum.auto()
    CANCELLED = enum.auto()


@final
class Channel(PushStore):
    """Bounded queues between producers and one reader. Thread-safe.

    Args:
        merge: Creates the reader's policy.
        lanes: Number of queues.
        capacity_bytes: Capacity of each lane.
        capacity_batches: Capacity of each lane.
    """

    def __init__(
        self,
        merge: Merge,
        lanes: int,
        capacity_bytes: int,
        capacity_batches: int,
    ) -> None:
        self._lock = threading.RLock()
        self.capacity_bytes = capacity_bytes
        self._capacity_batches = capacity_batches
        self.rows = Gate(self._lock)
        """Opens when a batch was queued, or a lane ended."""
        half = capacity_batches // 2, capacity_bytes // 2
        self.lanes = [
            LaneQueue(Gate(self._lock, _RECHECK), *half) for _ in range(lanes)
        ]
        self._merge = merge
        self._numbers = 0
        self._failure: BaseException | None = None
        """Why the producers failed."""
        self._reading = ReadingState.UNREAD
        self._reader_failure: BaseException | None = None
        """Why the reader failed, once reading is over."""
        self._is_held = False
        """Whether a ``with`` block of the table ends reading, and not its scan."""

    # --- producers --------------------------------------------------------------------

    def put(
        self, lane: int, batches: Sequence[pa.RecordBatch], timeout: float | None
    ) -> None:
        offer = self._offer(lane, batches)
        self.lanes[lane].room.wait_for(offer, timeout, _NO_ROOM)

    async def put_async(
        self, lane: int, batches: Sequence[pa.RecordBatch], timeout: float | None
    ) -> None:
        offer = self._offer(lane, batches)
        await self.lanes[lane].room.wait_for_async(offer, timeout, _NO_ROOM)

    def try_put(self, lane: int, batches: Sequence[pa.RecordBatch]) -> bool:
        with self._lock:
            return self._offer(lane, batches)() is not None

    def close(self, lane: int | None = None) -> None:
        with self._lock:
            for queue in self.lanes if lane is None else (self.lanes[lane],):
                queue.closed = True
                queue.room.open()
            self.rows.open()

    def fail(self, cause: BaseException) -> None:
        with self._lock:
            if self.is_closed:
                raise self._closed_error(0)
            self._failure = cause
            self.close()

    @property
    def is_closed(self) -> bool:
        return all(lane.closed for lane in self.lanes)

    @property
    def end(self) -> End | None:
        if not self._reading.is_over:
            return None
        if self._reader_failure is None:
            return ReaderFinished()
        return Failed(str(_reader_failed(self._reader_failure)))

    def _offer(
        self, lane: int, batches: Sequence[pa.RecordBatch]
    ) -> Callable[[], bool | None]:
        """Return what queues the batches: True, or None if there is no room."""
        items = [(rows, self._size(rows)) for rows in batches]
        return partial(self._queue, lane, self.lanes[lane], batches, items)

    def _queue(
        self,
        lane: int,
        queue: LaneQueue,
        batches: Sequence[pa.RecordBatch],
        items: Sequence[tuple[pa.RecordBatch, int]],
    ) -> bool | None:
        if queue.closed:
            raise self._closed_error(lane)
        if self._reading.is_over and self._reader_failure is not None:
            raise _reader_failed(self._reader_failure)
        if self._reading.is_over or queue.left:
            raise StopPushing
        if queue.items:
            size = queue.size
            for _, more in items:
                size += more
            count = len(queue.items) + len(items)
            if size > self.capacity_bytes or count > self._capacity_batches:
                return None
        self._merge.check(lane, batches)
        for rows, size in items:
            self._numbers += 1
            queue.items.append((self._numbers, rows, size))
            queue.size += size
            queue.rows_pushed += rows.num_rows
        self.rows.open()
        return True

    def _closed_error(self, lane: int) -> ClosedError:
        what = "the sink" if self.is_closed else f"lane {lane}"
        return closed_error(self._failure, what)

    def _size(self, rows: pa.RecordBatch) -> int:
        """Return the approximate bytes of a batch.

        The exact number costs as much as a copy.
        """
        whole: int = rows.get_total_buffer_size()
        if whole <= self.capacity_bytes // 8:
            return whole
        exact: int = rows.nbytes  # a slice refers to all of its parent's buffers
        return exact

    # --- the reader -------------------------------------------------------------------

    def scan(self, timeout: float | None) -> Iterator[pa.RecordBatch]:
        self.begin()
        try:
            while self.rows.wait_for(self._pull, timeout, _NO_ROWS) is _Turn.ROWS:
                yield self._merge.next()
            self._raise_failure()
        finally:
            self.leave_scan()

    def scan_async(self, timeout: float | None) -> AsyncScan:
        return _ChannelScan(self, timeout)

    async def next_async(self, timeout: float | None) -> pa.RecordBatch | None:
        """The next batch; None at the end."""
        turn = await self.rows.wait_for_async(self._pull, timeout, _NO_ROWS)
        if turn is _Turn.ROWS:
            return self._merge.next()
        self._raise_failure()
        return None

    def hold(self) -> None:
        self._is_held = True

    def take(
        self,
        lane: int,
        max_rows: int,
        timeout: float,
        reader: object,
        is_cancelled: Callable[[], bool] = bool,
    ) -> pa.RecordBatch | Finished | None:
        """Rows of one lane, for the stream type ``push``.

        Args:
            lane: The lane.
            max_rows: Maximum rows; the rest of a batch remains queued.
            timeout: Seconds.
            reader: The reader: the lane belongs to the first one that gets a batch.
            is_cancelled: Ends the wait when `wake` is called.

        Returns:
            None if no rows arrived in time; `Finished` at the end of the lane.

        Raises:
            ProducerFailed: permanent; after the last rows.
            MisuseError: misuse; another reader has the lane, or the whole table.
        """
        queue = self.lanes[lane]

        def attempt() -> pa.RecordBatch | Finished | _Turn | None:
            if self._reading.is_over and queue.reader is reader:
                self._raise_failure()
            if self._reading.is_over or queue.left:
                raise read_once()
            if queue.items or queue.closed:
                self._claim(queue, reader)
            if queue.items:
                return queue.take(max_rows)
            if queue.closed:
                self._raise_failure()
                return Finished()
            return _Turn.CANCELLED if is_cancelled() else None

        try:
            found = self.rows.wait_for(attempt, timeout, _NO_ROWS)
        except StreamTimeout:
            return None
        return None if isinstance(found, _Turn) else found

    def wake(self) -> None:
        """Make `take` check whether it was cancelled."""
        with self._lock:
            self.rows.open()

    def finish(self, failure: BaseException | None = None) -> None:
        """Refuse further writes, and remove queued batches."""
        with self._lock:
            if not self._reading.is_over:
                self._reader_failure = failure
                self._reading = after(self._reading, ReadingEvent.FINISH)
            for queue in self.lanes:
                queue.drop()
                queue.room.open()
            self.rows.open()

    def leave_scan(self) -> None:
        """End reading, unless a ``with`` block of the table does."""
        if not self._is_held:
            self.finish()

    def leave(self, reader: object) -> None:
        """End the reading of a reader's lanes; with the last one reading ends."""
        with self._lock:
            for queue in self.lanes:
                if queue.reader is reader:
                    queue.left = True
                    queue.drop()
                    queue.room.open()
            if all(queue.left for queue in self.lanes):
                self.finish()

    def abandon_table(self) -> None:
        with self._lock:
            if self._reading is ReadingState.UNREAD:
                msg = "the table was garbage-collected before it was read"
                self.finish(MisuseError(msg))

    def abandon_sink(self) -> None:
        with self._lock:
            if not self.is_closed:
                self.fail(MisuseError("the sink was garbage-collected before close()"))

    def statistics(self) -> PushStatistics:
        with self._lock:
            return PushStatistics(
                sum(lane.rows_pushed for lane in self.lanes),
                sum(lane.rows_read for lane in self.lanes),
                sum(len(lane.items) for lane in self.lanes),
                sum(lane.size for lane in self.lanes),
                sum(lane.room.seconds for lane in self.lanes),
                self.rows.seconds,
            )

    def begin(self) -> None:
        """Claim the one scan.

        Raises:
            MisuseError: misuse; another scan has begun.
            ClosedError: misuse; the table is closed.
        """
        with self._lock:
            self._reading = after(self._reading, ReadingEvent.SCAN)

    def _claim(self, queue: LaneQueue, reader: object) -> None:
        if queue.reader is not None and queue.reader is not reader:
            raise read_once()
        self._reading = after(self._reading, ReadingEvent.CLAIM)
        queue.reader = reader

    def _pull(self) -> _Turn | None:
        """Whether the policy has a batch, or will have none; None before either."""
        if self._merge.pull(self.lanes):
            return _Turn.ROWS
        return _Turn.END if self.is_closed or self._reading.is_over else None

    def _raise_failure(self) -> None:
        """Raise if the table ended before all rows were read."""
        if self._reading.is_over:
            msg = "the table was closed while it was read"
            raise ClosedError(msg)
        if self._failure is not None:
            raise producer_failed(self._failure)


@final
class _ChannelScan(AsyncScan):
    """Starts with the first wait; ends when it is closed or garbage-collected."""

    def __init__(self, channel: Channel, timeout: float | None) -> None:
        self._channel = channel
        self._timeout = timeout
        self._end: Callable[[], object] | None = None

    async def __anext__(self) -> pa.RecordBatch:
        if self._end is None:
            self._channel.begin()
            self._end = weakref.finalize(self, self._channel.leave_scan)
        rows = await self._channel.next_async(self._timeout)
        if rows is None:
            self._end()
            raise StopAsyncIteration
        return rows

    async def aclose(self) -> None:
        if self._end is not None:
            self._end()


def _reader_failed(cause: BaseException) -> ReaderFailed:
    error = ReaderFailed(f"the reader failed: {type(cause).__name__}: {cause}")
    error.__cause__ = cause
    return error
