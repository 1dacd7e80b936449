"""Time, as the framework sees it: one place to replace in simulations and tests."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import threading


class Clock:
    """The real one."""

    def now(self) -> float:
        """Seconds from some start; never goes back."""
        return time.monotonic()

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait for an event, ``seconds`` at the longest; True when it is set."""
        return event.wait(max(0.0, seconds))
