"""Waiting for sockets, so that it can be ended from another thread."""

from __future__ import annotations

import os
import random
import select
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streamfactory.backends.socket.options import Settings

READABLE: Final = select.POLLIN
WRITABLE: Final = select.POLLOUT
LONGEST_WAIT: Final = 0.25
"""Seconds after which timers are looked at, whatever happens."""
_WATCHED: Final = 200e-6 if (os.cpu_count() or 1) > 1 else 0.0
"""Seconds at the beginning of a wait in which nobody sleeps."""


def wait(
    wanted: Iterable[tuple[int, int]], seconds: float, *, watching: bool = False
) -> set[int]:
    """Wait until one of some descriptors is ready.

    Args:
        wanted: Descriptors, each with what it waits for.
        seconds: At the most, and `LONGEST_WAIT` in any case.
        watching: Whether not to sleep at first, which takes a core: for an answer that
            is short, and on its way.

    Returns:
        Those that are ready, or broken.
    """
    poll = select.poll()
    for descriptor, events in wanted:
        poll.register(descriptor, events)
    millis = max(0.0, min(seconds, LONGEST_WAIT)) * 1000
    found = poll.poll(0)
    if watching and not found:
        # To be woken takes longer than an answer. Nor is the core handed on: on a busy
        # machine it comes back milliseconds later.
        until = time.perf_counter() + min(seconds, _WATCHED)
        while not (found := poll.poll(0)) and time.perf_counter() < until:
            pass
    if not found and millis:
        # Up to whole milliseconds, so that the last part of one is not spun through.
        found = poll.poll(int(millis) + (millis > int(millis)))
    return {descriptor for descriptor, _ in found}


class Backoff:
    """Exponential, with full jitter and a cap."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._failures = 0
        self._not_before = 0.0

    @property
    def left(self) -> float:
        """Seconds until the next try."""
        return max(0.0, self._not_before - time.monotonic())

    def failed(self) -> None:
        ceiling = self._settings.retry_first * 2.0 ** min(self._failures, 30)
        pause = random.uniform(0, min(ceiling, self._settings.retry_longest))  # noqa: S311 - jitter keeps no secret
        self._failures += 1
        self._not_before = time.monotonic() + pause

    def reset(self) -> None:
        self._failures, self._not_before = 0, 0.0
