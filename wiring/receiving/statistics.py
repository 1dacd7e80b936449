"""What a receiver has done: counted by its threads, read by any."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

if TYPE_CHECKING:
    from streamfactory.spi import Partition


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """One partition of a spool at one moment."""

    partition: str
    state: str
    """``waiting`` for a sender, ``receiving``, ``blocked``, ``failed``, ``fenced`` or
    ``stopped``."""
    rows: int
    """Stored by this receiver."""
    bytes: int
    """Of them."""
    commits: int
    lost: int
    """Records of losses."""
    released: int
    """Offsets that retention, or the bound, has released."""
    next_offset: int | None
    """Of the transport, up to where it is stored; None where nothing is."""
    idle: float | None
    """Seconds since the last commit; None where there was none."""
    error: str | None
    """What it waits or has ended for."""


@final
class Statistics:
    """Counts for one partition. Thread-safe."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._lock = threading.Lock()
        self._state = "waiting"
        self._error: str | None = None
        self._rows = self._bytes = self._commits = self._released = self._lost = 0
        self._next: int | None = None
        self._at: float | None = None

    def stored(self, rows: int, size: int, last: Any) -> None:
        """Count a commit whose last batch was ``last``."""
        with self._lock:
            self._state, self._error = "receiving", None
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

    def blocked(self, why: str) -> None:
        """Take note that what was received cannot be stored at present."""
        self.enter("blocked", why)

    def enter(self, state: str, error: str | None = None) -> None:
        """Take note of a state."""
        with self._lock:
            self._state, self._error = state, error

    def report(self) -> PartitionReport:
        """The counts so far."""
        with self._lock:
            return PartitionReport(
                str(self._partition),
                self._state,
                self._rows,
                self._bytes,
                self._commits,
                self._lost,
                self._released,
                self._next,
                None if self._at is None else round(time.monotonic() - self._at, 3),
                self._error,
            )
