"""How long the kit waits for progress: what a slow machine takes is no defect."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final, final

SECONDS: Final = 5.0
"""In which a backend on one machine answers anything."""


@final
@dataclass(frozen=True, slots=True)
class Waits:
    """How long cases wait before they conclude that nothing more will come."""

    progress: float = SECONDS
    """Seconds without progress after which a loop of fetches ends."""
    attempts: int = 5
    """Attempts of a call that has to return in time: a busy machine may be late."""
    settle: float = 2.0
    """Seconds in which threads and children that are ending may still end."""
    looks: int = 20
    """Looks within them, at least: a starved process has slept through the seconds."""


USUAL: Final = Waits()


@final
class Patience:
    """Ends a loop of fetches that makes no progress.

    It is over when these seconds have passed since the last progress, and the fetches
    since then were allowed as much time in all. Where a process gets little of a
    processor, time passes without its having asked.
    """

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self.renew()

    def renew(self) -> None:
        """Begin again: there was progress."""
        self._asked = 0.0
        self._until = time.monotonic() + self._seconds

    def over(self, timeout: float, *, progress: bool = False) -> bool:
        """Count a fetch that was allowed ``timeout`` seconds; whether it was the last.

        Args:
            timeout: In seconds.
            progress: Whether it answered something new.
        """
        if progress:
            self.renew()
            return False
        # One that may not wait at all comes back at once.
        self._asked += max(timeout, 0.01)
        return self._asked >= self._seconds and time.monotonic() > self._until
