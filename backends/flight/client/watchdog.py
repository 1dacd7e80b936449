"""Deadlines for calls that have none of their own: they are cancelled when late.

A Flight reader blocks until its next message. One thread of the process watches all
of them, and mostly sleeps: setting a deadline wakes it only when it is the earliest.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from streamfactory.spi import StreamTimeout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_IDLE: Final = 60.0
"""Seconds that the thread sleeps without deadlines."""


class Watchdog:
    """Cancels what is late. Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._watched: dict[object, tuple[float, Callable[[], None]]] = {}
        self._wakes_at = 0.0
        threading.Thread(target=self._run, name="flight-deadlines", daemon=True).start()

    @contextmanager
    def limit(self, seconds: float, cancel: Callable[[], None]) -> Iterator[None]:
        """Call ``cancel`` from another thread when the block takes longer.

        Raises:
            StreamTimeout: transient; it did, and the block failed.
        """
        token, deadline = object(), time.monotonic() + seconds
        with self._changed:
            self._watched[token] = deadline, cancel
            if deadline < self._wakes_at:
                self._changed.notify()
        try:
            yield
        except Exception as error:
            if token not in self._watched:
                msg = f"the server did not answer within {seconds:.1f} s"
                raise StreamTimeout(msg) from error
            raise
        finally:
            with self._changed:
                self._watched.pop(token, None)

    def _run(self) -> None:
        while True:
            with self._changed:
                now = time.monotonic()
                late = [
                    (token, cancel)
                    for token, (deadline, cancel) in self._watched.items()
                    if deadline <= now
                ]
                for token, _ in late:
                    del self._watched[token]
                earliest = min((d for d, _ in self._watched.values()), default=now + _IDLE)
                self._wakes_at = earliest
                if not late:
                    self._changed.wait(earliest - now)
            for _, cancel in late:
                cancel()


_lock: Final = threading.Lock()
_watchdogs: Final[dict[int, Watchdog]] = {}
"""By process: threads do not survive a fork."""


def watchdog() -> Watchdog:
    """The one of this process."""
    with _lock:
        if os.getpid() not in _watchdogs:
            _watchdogs[os.getpid()] = Watchdog()
        return _watchdogs[os.getpid()]
