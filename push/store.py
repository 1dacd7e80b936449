"""The interface of a sink and its table to their storage: a queue, or a log."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from streamfactory.spi import ClosedError, ProducerFailed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from streamfactory.spi import End


class StopPushing(Exception):
    """The reader needs no more rows: its query had a LIMIT, or it was closed.

    Raised by writes after the reader has finished. It is a normal end: the producer
    stops. A ``with`` block of the sink ends without an error.
    """

    def __init__(self) -> None:
        super().__init__("the reader needs no more rows")


@dataclass(frozen=True, slots=True)
class PushStatistics:
    """Statistics of a push table."""

    rows_pushed: int
    """Rows that writes have queued."""
    rows_read: int
    """Rows that readers received."""
    queued_batches: int
    """Batches that are queued now."""
    queued_bytes: int
    """Bytes that are queued now."""
    writers_blocked_seconds: float
    """Seconds that writes have waited for room, summed over all producers."""
    reader_blocked_seconds: float
    """Seconds that the reader has waited for rows."""


class AsyncScan(ABC):
    """Batches for one coroutine at a time, until all lanes have ended."""

    table: object = None
    """Referred to, so that it is not garbage-collected before its reader."""

    def __aiter__(self) -> Self:
        return self

    @abstractmethod
    async def __anext__(self) -> pa.RecordBatch: ...

    @abstractmethod
    async def aclose(self) -> None:
        """End the scan."""


class PushStore(ABC):
    """Passes batches from producers to readers. Thread-safe.

    It references neither the sink nor the table: when one of them is garbage-collected,
    a finalizer calls `abandon_sink` or `abandon_table`, possibly in a thread that is
    executing one of these methods.
    """

    @abstractmethod
    def put(
        self, lane: int, batches: Sequence[pa.RecordBatch], timeout: float | None
    ) -> None:
        """Queue batches atomically; blocks while there is no room.

        Raises:
            StopPushing: The reader has finished.
            ReaderFailed: permanent.
            ClosedError: misuse; the lane was closed, before or during the call.
            StreamTimeout: transient; nothing was queued.
        """

    @abstractmethod
    async def put_async(
        self, lane: int, batches: Sequence[pa.RecordBatch], timeout: float | None
    ) -> None:
        """As `put`, in a coroutine."""

    @abstractmethod
    def try_put(self, lane: int, batches: Sequence[pa.RecordBatch]) -> bool:
        """As `put`, without waiting; False where there is no room."""

    @abstractmethod
    def close(self, lane: int | None = None) -> None:
        """End one lane, or all. Queued batches can still be read."""

    @abstractmethod
    def fail(self, cause: BaseException) -> None:
        """End all lanes with an error, which readers get after the queued batches.

        Raises:
            ClosedError: misuse; all lanes had ended before.
        """

    @property
    @abstractmethod
    def is_closed(self) -> bool:
        """Whether nothing can be pushed any more."""

    @property
    @abstractmethod
    def end(self) -> End | None:
        """How the reader ended; None while it has not."""

    @abstractmethod
    def scan(self, timeout: float | None) -> Iterator[pa.RecordBatch]:
        """Batches until all lanes have ended.

        Raises:
            MisuseError: misuse; there can be no scan, or no other one.
            ProducerFailed: permanent; chained to the exception of the producer.
            StreamTimeout: transient; the scan ends, as when it is closed.
        """

    @abstractmethod
    def scan_async(self, timeout: float | None) -> AsyncScan:
        """As `scan`, for coroutines. A wait that is cancelled ends nothing."""

    @abstractmethod
    def hold(self) -> None:
        """Make only `finish` end reading, not the end of a scan."""

    @abstractmethod
    def finish(self, failure: BaseException | None = None) -> None:
        """End reading.

        Args:
            failure: The reader's error; None if it needs no more rows.
        """

    @abstractmethod
    def abandon_sink(self) -> None:
        """Fail the table, unless the producers have closed or failed it."""

    @abstractmethod
    def abandon_table(self) -> None:
        """Refuse writes if there was no reader, because none is possible any more."""

    @abstractmethod
    def statistics(self) -> PushStatistics:
        """What passed so far."""


def closed_error(failure: BaseException | None, what: str = "the sink") -> ClosedError:
    """Return the error of a write after the end.

    Args:
        failure: Why the producers failed; None where they have not.
        what: Was closed: the sink, or a lane of it.
    """
    if failure is not None:
        why = f"{type(failure).__name__}: {failure}"
        return ClosedError(f"the sink has failed before: {why}")
    remedy = "close it when the last of its producers has ended"
    return ClosedError(f"{what} was closed and accepts no more rows", remedy=remedy)


def producer_failed(cause: BaseException) -> ProducerFailed:
    """The error of a reader, with the producer's exception as its cause."""
    error = ProducerFailed(f"the producer failed: {type(cause).__name__}: {cause}")
    error.__cause__ = cause
    return error
