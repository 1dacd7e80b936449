"""Waiting for a change of a channel, in threads and in coroutines."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar, final

from streamfactory.spi import StreamTimeout
from streamfactory.spi.waits import SLICE

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


@final
class Gate:
    """Wakes the threads and coroutines that wait for one kind of change.

    Args:
        lock: Guards what changes. It is reentrant: garbage collection may run a
            finalizer of the channel in a thread that holds it.
        recheck: Seconds after which a wait looks again without being woken; None
            where `open` is called for each change.
    """

    def __init__(self, lock: threading.RLock, recheck: float | None = None) -> None:
        self._lock = lock
        self._recheck = recheck
        self._threads = threading.Condition(lock)
        self._waiting = 0
        """Threads that wait."""
        self._coroutines: set[Callable[[], object]] = set()
        self.seconds = 0.0
        """Seconds that threads and coroutines have waited, in total."""

    def open(self) -> None:
        """Wake all waiters. Called with the lock held."""
        # Mostly nothing waits, and this is called for each batch.
        if self._waiting:
            self._threads.notify_all()
        if self._coroutines:
            for wake in tuple(self._coroutines):
                with suppress(RuntimeError):  # its event loop was closed
                    wake()

    def wait_for(
        self, attempt: Callable[[], T | None], timeout: float | None, what: str
    ) -> T:
        """Try until an attempt returns something.

        Args:
            attempt: Called with the lock held.
            timeout: Seconds; None for no limit.
            what: The awaited event, for the error.

        Raises:
            StreamTimeout: transient.
        """
        with self._lock:
            found = attempt()
            if found is not None:
                return found
            begun = time.monotonic()
            self._waiting += 1
            try:
                while True:
                    left = _left(begun, timeout, what)
                    self._threads.wait(min(SLICE, self._pause(left) or SLICE))
                    found = attempt()
                    if found is not None:
                        return found
            finally:
                self._waiting -= 1
                self.seconds += time.monotonic() - begun

    async def wait_for_async(
        self, attempt: Callable[[], T | None], timeout: float | None, what: str
    ) -> T:
        """Like `wait_for`, without blocking the event loop. May be cancelled."""
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
                    await asyncio.wait_for(changed.wait(), self._pause(left))
        finally:
            with self._lock:
                self._coroutines.discard(wake)
                if begun is not None:
                    self.seconds += time.monotonic() - begun

    def _pause(self, left: float | None) -> float | None:
        if left is None or self._recheck is None:
            return self._recheck if left is None else left
        return min(left, self._recheck)


def _left(begun: float, timeout: float | None, what: str) -> float | None:
    if timeout is None:
        return None
    left = begun + timeout - time.monotonic()
    if left <= 0:
        msg = f"{what} within {timeout:g} s"
        raise StreamTimeout(
            msg, remedy="increase the timeout, or check why the other side is blocked"
        )
    return left
