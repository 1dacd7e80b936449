"""Polling of sockets, which another thread can end."""

from __future__ import annotations

import os
import select
import time
from typing import TYPE_CHECKING, Final

from streamfactory.spi.backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streamfactory.backends.socket.options import Settings

READABLE: Final = select.POLLIN
WRITABLE: Final = select.POLLOUT
LONGEST_WAIT: Final = 0.25
"""Maximum seconds of one wait, after which timeouts are checked."""
_WATCHED: Final = 200e-6 if (os.cpu_count() or 1) > 1 else 0.0
"""Seconds of busy polling at the start of a wait."""


def wait(
    wanted: Iterable[tuple[int, int]], seconds: float, *, watching: bool = False
) -> set[int]:
    """Wait until a descriptor is ready.

    Args:
        wanted: Descriptors and their events.
        seconds: Maximum time, at most `LONGEST_WAIT`.
        watching: Whether to poll busily at first, which uses a core: for a short reply
            that is expected soon.

    Returns:
        The descriptors that are ready or failed.
    """
    poll = select.poll()
    for descriptor, events in wanted:
        poll.register(descriptor, events)
    millis = max(0.0, min(seconds, LONGEST_WAIT)) * 1000
    found = poll_busily(poll, min(seconds, _WATCHED)) if watching else poll.poll(0)
    if not found and millis:
        # Round up to whole milliseconds, to avoid spinning through the last fraction.
        found = poll.poll(int(millis) + (millis > int(millis)))
    return {descriptor for descriptor, _ in found}


def poll_busily(poll: select.poll, seconds: float = _WATCHED) -> list[tuple[int, int]]:
    """Poll until a descriptor is ready, without yielding the core.

    A wake-up takes longer than a short reply. The core is not yielded either: on a busy
    machine it would come back milliseconds later.
    """
    found = poll.poll(0)
    if not found:
        until = time.perf_counter() + seconds
        while not (found := poll.poll(0)) and time.perf_counter() < until:
            pass
    return found


class NextTry:
    """When a connection to a peer is tried again."""

    def __init__(self, settings: Settings) -> None:
        self._backoff = Backoff(settings.retry_first, settings.retry_longest)
        self._failures = 0
        self._not_before = 0.0

    @property
    def left(self) -> float:
        """Seconds until the next try."""
        return max(0.0, self._not_before - time.monotonic())

    def failed(self) -> None:
        self._failures += 1
        self._not_before = time.monotonic() + self._backoff.pause(self._failures)

    def reset(self) -> None:
        self._failures, self._not_before = 0, 0.0
