"""Deadlines for calls without one: they are cancelled when late.

A Flight reader blocks until its next message. One thread per connection watches its
readers. It mostly sleeps and is only woken by an earlier deadline.
"""

from __future__ import annotations

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
    """Cancels late calls. Thread-safe; closed by the connection."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._watched: dict[object, tuple[float, Callable[[], None]]] = {}
        self._wakes_at = 0.0
        self._closed = False
        self._thread: threading.Thread | None = None

    @contextmanager
    def limit(self, seconds: float, cancel: Callable[[], None]) -> Iterator[None]:
        """Call ``cancel`` from another thread when the block takes longer.

        Raises:
            StreamTimeout: transient; it did, and the block failed.
        """
        token, deadline = object(), time.monotonic() + seconds
        with self._changed:
            self._watched[token] = deadline, cancel
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(
                    target=self._run, name="flight-deadlines", daemon=True
                )
                self._thread.start()
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

    def close(self) -> None:
        """Stop the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._closed:
                    return
                now = time.monotonic()
                late = [
                    (token, cancel)
                    for token, (deadline, cancel) in self._watched.items()
                    if deadline <= now
                ]
                for token, _ in late:
                    del self._watched[token]
                deadlines = (deadline for deadline, _ in self._watched.values())
                earliest = min(deadlines, default=now + _IDLE)
                self._wakes_at = earliest
                if not late:
                    self._changed.wait(earliest - now)
            for _, cancel in late:
                cancel()
