"""Statistics of a receiver, updated by its threads and read by any thread."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from streamfactory.spi import Sample, StreamError
from streamfactory.wiring.metrics import vocabulary as v

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from streamfactory.spi import Metric, Partition


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """The state of one partition of a spool."""

    partition: str
    state: str
    """``waiting`` for a sender, ``receiving``, ``paused``, ``blocked``, ``failed``,
    ``fenced`` or ``stopped``."""
    rows: int
    """Rows stored by this receiver."""
    bytes: int
    """Of them."""
    commits: int
    lost: int
    """Records of losses."""
    released: int
    """Offsets that retention or the limit has released."""
    next_offset: int | None
    """Stored position of the transport; None if nothing is stored."""
    idle: float | None
    """Seconds since the last commit; None if there was none."""
    error: str | None
    """The cause why it waits or has ended."""


@final
class Statistics:
    """Counters of one partition. Thread-safe."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._lock = threading.Lock()
        self._state = "waiting"
        self._error: str | None = None
        self._blocked: str | None = None
        self._rows = self._bytes = self._commits = self._released = self._lost = 0
        self._next: int | None = None
        self._at: float | None = None

    def stored(self, rows: int, size: int, last: Any) -> None:
        """Count a commit whose last batch was ``last``."""
        with self._lock:
            self._blocked = None
            self._rows += rows
            self._bytes += size
            self._commits += 1
            self._next = last.next_offset
            self._at = time.monotonic()

    def lost(self) -> None:
        """Count a record of a loss."""
        with self._lock:
            self._lost += 1

    def released(self, offsets: int) -> None:
        """Count offsets that were released."""
        with self._lock:
            self._released += offsets

    def blocked(self, why: str | None) -> None:
        """Record why received rows cannot be stored at present; None if they can.

        It is kept apart from the state, which another thread sets, and hides it.
        """
        with self._lock:
            self._blocked = why

    def enter(self, state: str, error: str | None = None) -> None:
        """Record a state of receiving."""
        with self._lock:
            self._state, self._error = state, error

    def report(self) -> PartitionReport:
        """Return the current counts."""
        with self._lock:
            state, error = self._state, self._error
            if self._blocked is not None:
                state, error = "blocked", self._blocked
            return PartitionReport(
                str(self._partition),
                state,
                self._rows,
                self._bytes,
                self._commits,
                self._lost,
                self._released,
                self._next,
                None if self._at is None else round(time.monotonic() - self._at, 3),
                error,
            )


_COUNTED: Final[tuple[tuple[Metric, str], ...]] = (
    (v.SPOOL_ROWS, "rows"),
    (v.SPOOL_BYTES, "bytes"),
    (v.SPOOL_COMMITS, "commits"),
    (v.SPOOL_LOSSES, "lost"),
    (v.SPOOL_RELEASED, "released"),
)


@final
class SpoolTally:
    """The metrics of one partition's receiver. Thread-safe.

    Args:
        stream: Name of the stream.
        partition: Which.
        statistics: Its counts.
        held: Answers the bytes that the spool holds of it.
        limit: Bytes that it may hold; None without a bound.
    """

    def __init__(
        self,
        stream: str,
        partition: Partition,
        statistics: Statistics,
        held: Callable[[], int],
        limit: int | None,
    ) -> None:
        self._labels = (stream, str(partition.id))
        self._statistics = statistics
        self._held = held
        self._limit = limit

    def counters(self) -> Iterator[Sample]:
        """See `Tally`."""
        report = self._statistics.report()
        for metric, name in _COUNTED:
            yield Sample(metric, self._labels, getattr(report, name))

    def gauges(self) -> Iterator[Sample]:
        """See `Tally`; reads the spool's index."""
        report, labels = self._statistics.report(), self._labels
        yield Sample(v.SPOOL_BLOCKED, labels, report.state == "blocked")
        failed = report.state in ("failed", "fenced")
        yield Sample(v.SPOOL_FAILED, labels, failed)
        if report.idle is not None:
            yield Sample(v.SPOOL_IDLE, labels, report.idle)
        try:
            yield Sample(v.SPOOL_HELD, labels, self._held())
        except StreamError:
            return  # closed meanwhile, or the storage does not answer
        if self._limit is not None:
            yield Sample(v.SPOOL_LIMIT, labels, self._limit)
