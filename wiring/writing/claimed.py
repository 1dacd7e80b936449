"""A cache of committers that have claimed their writer, for consecutive puts."""

from __future__ import annotations

import os
import threading
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfactory.wiring.core.clock import Clock
    from streamfactory.wiring.writing.committer import Committer

_SECONDS: Final = 1.0
"""Seconds after which an idle committer is closed: connections and claims expire."""
_MOST: Final = 4


class _Turn:
    """Serializes the threads that put as one writer."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


@dataclass(slots=True)
class _Process:
    """The cache of one process."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    turns: WeakValueDictionary[str, _Turn] = field(default_factory=WeakValueDictionary)
    """By writer, while a thread has or awaits one."""
    kept: dict[str, tuple[float, Committer]] = field(default_factory=dict)
    """Expiry by writer; the writer that is idle for longest is the first."""
    closed: bool = False


@final
class ClaimedCommitters:
    """Caches the committers of recent writers. Thread-safe.

    A forked child has its own cache: it does not use connections and locks of its
    parent.

    Args:
        clock: Time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._processes: dict[int, _Process] = {}

    @contextmanager
    def turn(self, writer_id: str) -> Iterator[None]:
        """Exclude other threads that put as this writer, until the block ends."""
        own = self._own
        with own.lock:
            turn = own.turns.setdefault(writer_id, _Turn())
        with turn.lock:
            yield

    def take(self, writer_id: str) -> Committer | None:
        """Remove and return the committer of a writer; the caller owns it."""
        own = self._own
        with own.lock:
            until, committer = own.kept.pop(writer_id, (0.0, None))
        if committer is not None and until < self._clock.now():
            committer.close()
            return None
        return committer

    def keep(self, writer_id: str, committer: Committer) -> None:
        """Cache a committer after a successful commit."""
        until = self._clock.now() + _SECONDS
        own = self._own
        with own.lock:
            dropped = []
            if writer_id in own.kept:  # by a put of another thread
                dropped.append(own.kept.pop(writer_id))
            own.kept[writer_id] = until, committer
            while len(own.kept) > (0 if own.closed else _MOST):
                dropped.append(own.kept.pop(next(iter(own.kept))))
        _close(dropped)

    def close(self) -> None:
        """Close all cached committers, and later ones; may be called twice."""
        own = self._own
        with own.lock:
            own.closed = True
            dropped, own.kept = list(own.kept.values()), {}
        _close(dropped)

    @property
    def _own(self) -> _Process:
        return self._processes.setdefault(os.getpid(), _Process())


def _close(dropped: list[tuple[float, Committer]]) -> None:
    with ExitStack() as last:
        for _, committer in dropped:
            last.callback(committer.close)
