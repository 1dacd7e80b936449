"""Limits of rows and bytes per second."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from streamfactory.spi import FetchLimits

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamfactory.wiring.core.clock import Clock

_SLICE: Final = 0.25
"""Maximum seconds of one wait for a rate, which may change."""


@dataclass(frozen=True, slots=True)
class Rate:
    """The most that may be read per second; None without a limit."""

    rows: int | None = None
    bytes: int | None = None

    def __bool__(self) -> bool:
        return self != Rate()

    def __str__(self) -> str:
        parts = [
            f"{value} {name}/s"
            for name, value in (("rows", self.rows), ("bytes", self.bytes))
            if value is not None
        ]
        return " and ".join(parts) or "no limit"


@final
class Throttle:
    """Delays reads so that a rate is kept on average. Thread-safe: readers share one.

    What is read is a debt, which the rate pays off; while there is one, nothing more is
    read. So a pause saves nothing up, and a change of the rate applies at once.

    Args:
        rate: Returns the rate that applies now.
        clock: The clock.
    """

    def __init__(self, rate: Callable[[], Rate], clock: Clock) -> None:
        self._rate = rate
        self._clock = clock
        self._lock = threading.Lock()
        self._rows = self._bytes = 0.0
        """The debt."""
        self._at = clock.now()

    @property
    def rate(self) -> Rate:
        """The rate that applies now: a read of more has more than a second's."""
        return self._rate()

    def delay(self) -> float:
        """Seconds until the next read, if the rate stays as it is."""
        rate = self._rate()
        with self._lock:
            now = self._clock.now()
            elapsed, self._at = now - self._at, now
            self._rows = _left(self._rows, rate.rows, elapsed)
            self._bytes = _left(self._bytes, rate.bytes, elapsed)
            return max(self._rows / (rate.rows or 1), self._bytes / (rate.bytes or 1))

    def admit(self, limits: FetchLimits, closed: threading.Event) -> FetchLimits | None:
        """Wait until a read is allowed; return at once when ``closed`` is set.

        Args:
            limits: Of the read, with its timeout.
            closed: Ends the wait.

        Returns:
            The limits of the read: of a second at most, and what is left of the
            timeout. None if the rate allows no read in time.
        """
        deadline = self._clock.now() + limits.timeout
        while not closed.is_set() and (delay := self.delay()):
            left = deadline - self._clock.now()
            if left <= 0:
                return None
            self._clock.wait(closed, min(delay, left, _SLICE))
        rate = self._rate()
        return FetchLimits(
            min(limits.max_rows, rate.rows or limits.max_rows),
            min(limits.max_bytes, rate.bytes or limits.max_bytes),
            max(0.0, deadline - self._clock.now()),
        )

    def took(self, rows: int, size: int) -> None:
        """Record what was read."""
        with self._lock:
            self._rows += rows
            self._bytes += size


def _left(debt: float, rate: int | None, elapsed: float) -> float:
    """The debt after some seconds; without a rate there is none."""
    return 0.0 if rate is None else max(0.0, debt - rate * elapsed)
