"""Waits for the next commit of a topic on disk, by its own process or another one."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfactory.arrowlog.disk.journal import Journal
    from streamfactory.arrowlog.disk.storage import Watch

_KEPT: Final = 4
"""Watches that are kept for the next waits: each has file descriptors."""


@final
class Waiters:
    """The waits for new records of one topic. Thread-safe; one watch for each wait.

    Args:
        journal: The topic's records.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._lock = threading.Lock()
        self._idle: list[Watch] = []
        self._waiting: set[Watch] = set()

    def wait(
        self,
        partition: int,
        offset: int,
        timeout: float,
        cancelled: threading.Event | None = None,
    ) -> bool:
        """See `Log.wait`."""
        deadline = time.monotonic() + timeout
        journal = self._journal
        with self._watch() as watch:
            while True:
                journal.refreshed(ended=True)
                state = journal.known_with(partition)
                if state.latest[partition] > offset:
                    return True
                if state.deleted:
                    return False
                if cancelled is not None and cancelled.is_set():
                    return False
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                watch.wait(left)

    def wake(self) -> None:
        """See `Log.wake`."""
        with self._lock:
            for watch in self._waiting:
                watch.wake()

    def close(self) -> None:
        """Release the watches that nothing waits with."""
        with self._lock:
            watches, self._idle = self._idle, []
        for watch in watches:
            watch.close()

    @contextmanager
    def _watch(self) -> Iterator[Watch]:
        with self._lock:
            watch = self._idle.pop() if self._idle else None
        watch = watch or self._journal.storage.watch("log")
        with self._lock:
            self._waiting.add(watch)
        try:
            yield watch
        finally:
            with self._lock:
                self._waiting.discard(watch)
                kept = watch.reusable and len(self._idle) < _KEPT
                if kept:
                    self._idle.append(watch)
            if not kept:
                watch.close()
