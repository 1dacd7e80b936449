"""The producers' half of a push table."""

from __future__ import annotations

import itertools
import threading
import weakref
from typing import TYPE_CHECKING, Any, Self, final

import pyarrow as pa

from streamfactory.push.store import StopPushing
from streamfactory.spi import MisuseError
from streamfactory.spi.arguments import COUNT, SECONDS, takes
from streamfactory.spi.ddl import columns_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import timedelta

    from streamfactory.push.rows import RowFitter
    from streamfactory.push.store import PushStatistics, PushStore
    from streamfactory.spi import End


class _Writing:
    """The writes of a sink, and of one of its lanes."""

    def __init__(self, store: PushStore, fitter: RowFitter, timeout: float) -> None:
        self._store = store
        self._fitter = fitter
        self._timeout = timeout

    def write(self, rows: Any, timeout: float | timedelta | None = None) -> None:
        """Push rows; blocks while the lane is full.

        A batch or a table is queued completely or not at all. A stream is read and
        queued batch by batch: after an error the earlier ones remain queued. A batch
        that exceeds the capacity is queued alone, when the lane is empty.

        Args:
            rows: A record batch, a table, or whatever else `Sink.put` takes. What is in
                Arrow is not copied.
            timeout: Seconds to wait for room; the table's ``write_timeout`` by default.

        Raises:
            StopPushing: The reader needs no more rows. No error, but a signal.
            ReaderFailed: permanent; chained to the exception in the reader's block.
            SchemaMismatch: permanent; names the column by its dotted path.
            StreamTimeout: transient; there was no room in time.
            ClosedError: misuse; the sink was closed, or failed, before or during the
                call.
            MisuseError: misuse; the object has no rows.
        """
        timeout = self._seconds(timeout)
        for part in self._parts(rows):
            self._store.put(self._lane(), part, timeout)

    async def write_async(
        self, rows: Any, timeout: float | timedelta | None = None
    ) -> None:
        """Like `write`, for coroutines: waits without blocking the event loop.

        If cancelled, the batch or table was not queued.
        """
        timeout = self._seconds(timeout)
        for part in self._parts(rows):
            await self._store.put_async(self._lane(), part, timeout)

    def try_write(self, rows: Any) -> bool:
        """Like `write`, without waiting; False if there is no room for all rows.

        Raises:
            MisuseError: misuse; a stream cannot be queued completely.
        """
        if not isinstance(rows, pa.RecordBatch | pa.Table):
            if not hasattr(rows, "__arrow_c_array__"):
                msg = f"try_write takes batches and tables, not {type(rows).__name__!r}"
                raise MisuseError(msg, remedy="use write")
            rows = pa.record_batch(rows)
        (part,) = self._parts(rows)
        return self._store.try_put(self._lane(), part)

    def close(self) -> None:
        """End the table, or the lane. May be called twice."""
        raise NotImplementedError

    def fail(self, cause: Any) -> None:
        """End the table with an error, all of its lanes; never waits.

        Args:
            cause: An exception, or text. The reader gets it as the cause of a
                `ProducerFailed`, after the
                batches that are queued.

        Raises:
            ClosedError: misuse; the sink was closed or has failed before.
        """
        if not isinstance(cause, BaseException | str):
            msg = f"fail takes an exception or its text, not {type(cause).__name__!r}"
            raise MisuseError(msg)
        self._store.fail(RuntimeError(cause) if isinstance(cause, str) else cause)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: object
    ) -> bool:
        if error is None or isinstance(error, StopPushing):
            self.close()
            return error is not None
        if not self._store.is_closed:
            self.fail(error)
        return False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: object
    ) -> bool:
        return self.__exit__(kind, error, None)

    def _seconds(self, timeout: float | timedelta | None) -> float:
        if timeout is None:
            return self._timeout
        return float(SECONDS.checked("timeout", timeout))

    def _lane(self) -> int:
        raise NotImplementedError

    def _parts(self, rows: Any) -> Iterable[Sequence[pa.RecordBatch]]:
        """What is queued in one step, part by part."""
        if isinstance(rows, pa.RecordBatch):
            return ((self._fitter.fit(rows),),)
        batches = self._fitter.batches(rows)
        if isinstance(rows, pa.Table):
            return (list(batches),)
        return ((batch,) for batch in batches)


@final
class PushSink(_Writing):
    """Pushes batches into a table. Any number of threads may write.

    With several lanes each thread writes to its own lane, the first one to lane 0 and
    so on, starting again at 0 if there are more threads; `lane` selects one instead.

    Close it when all rows are pushed, or `fail` it. As a context manager it closes at
    the end of the block; an exception in the block is passed to `fail`, and
    `StopPushing` ends the block quietly. A sink that is garbage-collected before fails.

    Args:
        store: Receives the batches.
        fitter: Checks them.
        lanes: Number of lanes.
        timeout: Default seconds that a write waits.
    """

    def __init__(
        self, store: PushStore, fitter: RowFitter, lanes: int, timeout: float
    ) -> None:
        super().__init__(store, fitter, timeout)
        self._lanes = lanes
        self._threads = itertools.count()
        self._own = threading.local()
        weakref.finalize(self, store.abandon_sink).atexit = False

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return f"<PushSink of {columns_text(self._fitter.schema)}, {state}>"

    @takes(number=COUNT)
    def lane(self, number: int) -> PushLane:
        """Return one lane, numbered from 0.

        Raises:
            MisuseError: misuse; there are fewer lanes.
        """
        if not 0 <= number < self._lanes:
            msg = (
                f"lane {number} does not exist: the table has lanes 0 to "
                f"{self._lanes - 1}"
            )
            raise MisuseError(msg)
        return PushLane(self, number)

    def close(self) -> None:
        """End the table: the reader gets the queued batches, then the end.

        May be called twice. A blocked write of another thread raises `ClosedError`.
        """
        self._store.close()

    @property
    def closed(self) -> bool:
        """Whether the sink was closed, or has failed."""
        return self._store.is_closed

    @property
    def reader_end(self) -> End | None:
        """How the reader ended: `ReaderFinished` or `Failed`; None if it has not."""
        return self._store.end

    @property
    def statistics(self) -> PushStatistics:
        """The statistics so far."""
        return self._store.statistics()

    def _lane(self) -> int:
        if self._lanes == 1:
            return 0
        number: int | None = getattr(self._own, "lane", None)
        if number is None:
            number = self._own.lane = next(self._threads) % self._lanes
        return number


@final
class PushLane(_Writing):
    """Pushes batches into one lane of a table, in their order. See `PushSink.lane`.

    As a context manager it closes the lane at the end of the block; an exception in the
    block fails the whole table.
    """

    def __init__(self, sink: PushSink, number: int) -> None:
        super().__init__(sink._store, sink._fitter, sink._timeout)
        self._sink = sink  # referenced, because a garbage-collected sink fails
        self._number = number

    def close(self) -> None:
        """End this lane. The table ends with the last one."""
        self._store.close(self._number)

    def _lane(self) -> int:
        return self._number
