"""Waiting for a change of a channel, in threads and in coroutines."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar, final

from streamfactory.spi import StreamTimeout

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


@final
class Gate:
    """Wakes the threads and coroutines that wait for one kind of change.

    Args:
        lock: Guards what changes. It is reentrant: garbage collection may run a
            finalizer of the channel in a thread that holds it.
    """

    def __init__(self, lock: threading.RLock) -> None:
        self._lock = lock
        self._threads = threading.Condition(lock)
        self._coroutines: set[Callable[[], object]] = set()
        self.seconds = 0.0
        """How long threads and coroutines have waited, in all."""

    def open(self) -> None:
        """Have all that wait look again. With the lock held."""
        self._threads.notify_all()
        for wake in tuple(self._coroutines):
            with suppress(RuntimeError):  # its event loop was closed
                wake()

    def wait_for(
        self, attempt: Callable[[], T | None], timeout: float | None, what: str
    ) -> T:
        """Try until an attempt returns something.

        Args:
            attempt: Is called with the lock held.
            timeout: Seconds; None waits until the channel changes, however long.
            what: What was waited for, for the error.

        Raises:
            StreamTimeout: transient.
        """
        with self._lock:
            found = attempt()
            if found is not None:
                return found
            begun = time.monotonic()
            try:
                while True:
                    left = _left(begun, timeout, what)
                    self._threads.wait(left)
                    found = attempt()
                    if found is not None:
                        return found
            finally:
                self.seconds += time.monotonic() - begun

    async def wait_for_async(
        self, attempt: Callable[[], T | None], timeout: float | None, what: str
    ) -> T:
        """As `wait_for`, without blocking the event loop. Cancelling is allowed."""
        loop = asyncio.get_running_loop()
        changed = asyncio.Event()

        def wake() -> None:
            loop.call_soon_threadsafe(changed.set)

        begun: float | None = None
        try:
            while True:
                changed.clear()
                with self._lock:
                    found = attempt()
                    if found is not None:
                        return found
                    self._coroutines.add(wake)
                begun = begun or time.monotonic()
                left = _left(begun, timeout, what)
                with suppress(TimeoutError):  # `_left` raises, with what was waited for
                    await asyncio.wait_for(changed.wait(), left)
        finally:
            with self._lock:
                self._coroutines.discard(wake)
                if begun is not None:
                    self.seconds += time.monotonic() - begun


def _left(begun: float, timeout: float | None, what: str) -> float | None:
    if timeout is None:
        return None
    left = begun + timeout - time.monotonic()
    if left <= 0:
        msg = f"{what} within {timeout:g} s"
        raise StreamTimeout(
            msg, remedy="wait longer, or look why the other side stands"
        )
    return left
