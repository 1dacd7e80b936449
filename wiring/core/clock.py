"""The framework's clock, which simulations and tests replace."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from streamfactory.spi.waits import wait_in_slices

if TYPE_CHECKING:
    import threading


class Clock:
    """The real clock."""

    def now(self) -> float:
        """Return monotonic seconds."""
        return time.monotonic()

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait at most ``seconds`` for an event; return whether it is set."""
        return wait_in_slices(event.wait, seconds)
