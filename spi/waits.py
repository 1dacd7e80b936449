"""Waits that Ctrl-C ends within a second, whatever other libraries do with signals.

Some, Polars for example, install handlers that have the system restart an interrupted
wait: Python then raises `KeyboardInterrupt` only after it. So long waits are made of
short ones.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

SLICE: Final = 0.25
"""Maximum seconds of one wait of a thread that a user may interrupt."""


def wait_in_slices(
    wait: Callable[[float], object], seconds: float | None = None
) -> bool:
    """Call a wait until it succeeds; each call takes at most `SLICE` seconds.

    Args:
        wait: Waits for so many seconds, such as ``event.wait``; true once it succeeds.
        seconds: Maximum time; None for no limit.

    Returns:
        Whether it has succeeded in time.
    """
    if seconds is not None and seconds <= SLICE:
        return bool(wait(max(0.0, seconds)))
    until = None if seconds is None else time.monotonic() + seconds
    while True:
        left = SLICE if until is None else until - time.monotonic()
        if wait(max(0.0, min(SLICE, left))):
            return True
        if left <= 0:
            return False
