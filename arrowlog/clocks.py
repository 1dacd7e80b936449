"""The clock of append times, checked before rows expire by it."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

BOUND: Final = 600_000
"""Milliseconds by which clocks may differ. A clock that runs further ahead would let
rows expire that are young, and keep all later ones for as long as it runs ahead."""

log = logging.getLogger("streamfactory")


class LogClock:
    """Milliseconds since the epoch. Thread-safe.

    Args:
        name: Name of the topic, for warnings.
        clock: The time; that of the machine by default.
    """

    def __init__(self, name: str, clock: Callable[[], float] | None = None) -> None:
        self._name = name
        self._clock = clock or _machine
        self._reported: set[str] = set()

    def now(self, last: float) -> float:
        """Return the time; the machine's if it runs ahead of the machine and the log.

        Args:
            last: Time of the last commit.
        """
        now, machine = self._clock(), _machine()
        if now <= max(last, machine) + BOUND:
            return now
        self.report("the log's clock", "the machine's time is used")
        return machine

    def report(self, what: str, instead: str) -> None:
        """Warn, once for each ``what``, that a time is not used."""
        if what not in self._reported:
            self._reported.add(what)
            text = "topic %r: %s runs more than %.0f s ahead: %s"
            log.warning(text, self._name, what, BOUND / 1000, instead)


def _machine() -> float:
    return time.time() * 1000
