"""A thread that sends what waits for more, when no more comes."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

PERIOD: Final = 2e-3
"""Seconds between two looks: what is held goes after one, or after two at the latest.
The more often somebody looks, the more he is in the way of who writes."""


class Flusher:
    """Looks after what is held, as long as something is.

    Args:
        lock: Of what is held. Who has it needs no flusher.
        flush: Called with the lock; answers the seconds until the next look,
            0 where there is nothing to look after.
    """

    def __init__(self, lock: threading.Lock, flush: Callable[[], float]) -> None:
        self._lock = lock
        self._flush = flush
        self._wanted = threading.Event()
        self._thread: threading.Thread | None = None
        self._stopped = False

    def watch(self) -> None:
        """Look soon. The caller has the lock."""
        if self._wanted.is_set() or self._stopped:
            return
        self._wanted.set()
        if self._thread is None:
            name = "socket-flusher"
            self._thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._thread.start()

    def close(self) -> None:
        """End the thread; twice is fine. The caller has not the lock."""
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
