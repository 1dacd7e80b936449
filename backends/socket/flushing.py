"""A thread that sends batches held back for coalescing when no more follow."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

PERIOD: Final = 2e-3
"""Seconds between two checks; held batches are sent after one or two of them. More
frequent checks would slow down the writing thread."""


class Flusher:
    """Flushes held batches, while there are any.

    Args:
        lock: Protects the held batches. The flusher skips a check while it is taken.
        flush: Called with the lock held; returns seconds until the next check, 0 if
            nothing is held.
    """

    def __init__(self, lock: threading.Lock, flush: Callable[[], float]) -> None:
        self._lock = lock
        self._flush = flush
        self._wanted = threading.Event()
        self._thread: threading.Thread | None = None
        self._stopped = False

    def watch(self) -> None:
        """Schedule a check. The caller holds the lock."""
        if self._wanted.is_set() or self._stopped:
            return
        self._wanted.set()
        if self._thread is None:
            name = "socket-flusher"
            self._thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stop the thread. May be called twice. The caller must not hold the lock."""
        with self._lock:
            self._stopped = True
            self._wanted.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        pause = PERIOD
        while self._wanted.wait() and not self._stopped:
            time.sleep(pause or PERIOD)
            if not self._lock.acquire(blocking=False):
                continue
            try:
                pause = self._flush()
                if not (pause or self._stopped):
                    self._wanted.clear()
            finally:
                self._lock.release()
