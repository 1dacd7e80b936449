"""Committers that have claimed their writer, kept from one put to the next."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from streamfactory.wiring.core.clock import Clock
    from streamfactory.wiring.writing.committer import Committer

_SECONDS: Final = 1.0
"""Idle committers are not used again: connections and claims expire."""
_MOST: Final = 4


@final
class ClaimedCommitters:
    """The committers of the writers that put last. Thread-safe.

    Args:
        clock: Time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[float, Committer]] = {}
        """Until when, by writer; the one that is idle for longest is the first."""
        self._closed = False

    def take(self, writer_id: str) -> Committer | None:
        """The committer of a writer, which is the caller's from here on."""
        with self._lock:
            until, committer = self._kept.pop(writer_id, (0.0, None))
        if committer is not None and until < self._clock.now():
            committer.close()
            return None
        return committer

    def keep(self, writer_id: str, committer: Committer) -> None:
        """Keep a committer after a commit that succeeded."""
        until = self._clock.now() + _SECONDS
        with self._lock:
            dropped = []
            if writer_id in self._kept:  # of a put in another thread
                dropped.append(self._kept.pop(writer_id))
            self._kept[writer_id] = until, committer
            while len(self._kept) > (0 if self._closed else _MOST):
                dropped.append(self._kept.pop(next(iter(self._kept))))
        _close(dropped)

    def close(self) -> None:
        """Close what is kept, and what is given back later; twice is allowed."""
        with self._lock:
            self._closed = True
            dropped, self._kept = list(self._kept.values()), {}
        _close(dropped)


def _close(dropped: list[tuple[float, Committer]]) -> None:
    with ExitStack() as last:
        for _, committer in dropped:
            last.callback(committer.close)
