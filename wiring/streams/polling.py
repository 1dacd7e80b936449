"""Batches of a stream for asyncio: polled in a bounded pool of threads.

Streams have no threads of their own. While few streams wait, each blocks a thread of
the pool, and gets a batch immediately; if more wait than the pool has threads, they are
polled without blocking, and their tasks sleep between polls.
"""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Final, final

from streamfactory.spi import ClosedError, MisuseError

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamfactory.spi import MessageBatch, Position

_THREADS: Final = min(32, (os.cpu_count() or 1) + 4)
"""Threads of the pool, which all streams of a process share."""
_WAIT: Final = 0.25
"""Seconds that a poll blocks while the pool has free threads."""
_SHORTEST_PAUSE: Final = 0.001
_LONGEST_PAUSE: Final = 0.05
"""Seconds between polls of an idle stream, for up to `_AT_ONCE` streams; more streams
pause longer, so that the total cost of idle streams is constant."""
_AT_ONCE: Final = 64
_LONGEST: Final = 1.0

_lock = threading.Lock()
_pools: Final[dict[int, ThreadPoolExecutor]] = {}
"""The pool by process: a forked child has no threads."""
_waiting: Final[set[int]] = set()
"""Ids of the `AsyncBatches` that a task waits for."""


def _pool() -> ThreadPoolExecutor:
    with _lock:
        pool = _pools.get(os.getpid())
        if pool is None:
            pool = ThreadPoolExecutor(_THREADS, "streamfactory-poll")
            _pools[os.getpid()] = pool
        return pool


@final
class AsyncBatches:
    """An asynchronous iterator over the batches of one stream. One task at a time.

    A cancelled wait loses no batch: the next wait returns the batch of its poll.

    Args:
        poll: Returns the next batch, or None if none arrived within so many seconds.
        position: Returns the next offsets after the last batch of ``poll``.
        finished: Whether the stream has ended.
        ends: Whether a `ClosedError` ends the iteration.
    """

    def __init__(
        self,
        poll: Callable[[float], MessageBatch | None],
        *,
        position: Callable[[], Position],
        finished: Callable[[], bool],
        ends: Callable[[], bool],
    ) -> None:
        self._poll = poll
        self._position = position
        self._finished = finished
        self._ends = ends
        self._future: Future[MessageBatch | None] | None = None
        self._before: Position | None = None

    @property
    def before(self) -> Position | None:
        """The position before a batch that was fetched, but not returned yet."""
        return self._before

    def take(self, timeout: float) -> tuple[bool, MessageBatch | None]:
        """Return the batch of a cancelled wait, for synchronous reading.

        Args:
            timeout: Seconds to wait for its poll.

        Returns:
            Whether the poll has finished, and its batch, if any.
        """
        future = self._future
        if future is None:
            return True, None
        if not wait([future], timeout).done:
            return False, None
        self._handed_out()
        return True, None if future.cancelled() else future.result()

    def check_handed_out(self, stream: str) -> None:
        """Raise if a fetched batch was not returned yet.

        Raises:
            MisuseError: misuse; a cancelled wait left a batch.
        """
        future = self._future
        if future is None or future.cancelled():
            return
        if future.exception() is None and future.result() is not None:
            msg = "a batch that was fetched for a cancelled wait was not returned yet"
            raise MisuseError(msg, stream=stream, remedy="read it before commit")

    def __aiter__(self) -> AsyncBatches:
        return self

    async def __anext__(self) -> MessageBatch:
        if id(self) in _waiting:
            msg = "two tasks iterate over one stream"
            raise MisuseError(msg, remedy="open the stream once per task")
        _waiting.add(id(self))
        try:
            return await self._next()
        finally:
            _waiting.discard(id(self))

    async def _next(self) -> MessageBatch:
        pause = _SHORTEST_PAUSE
        while not self._finished() or self._future is not None:
            room = len(_waiting) <= _THREADS // 2
            try:
                batch = await self._polled(_WAIT if room else 0.0)
            except ClosedError:
                if self._ends():
                    raise StopAsyncIteration from None
                raise
            if batch is None:
                await asyncio.sleep(_SHORTEST_PAUSE if room else pause)
                pause = min(pause * 2, _longest_pause())
            elif batch.num_rows or batch.losses:
                return batch
        raise StopAsyncIteration

    async def _polled(self, timeout: float) -> MessageBatch | None:
        if self._future is None or self._future.cancelled():
            self._future = _pool().submit(self._fetch, timeout)
        future = self._future
        try:
            batch = await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if future.cancelled():
                self._handed_out()
            raise
        except BaseException:
            self._handed_out()
            raise
        self._handed_out()
        return batch

    def _fetch(self, timeout: float) -> MessageBatch | None:
        """Poll; runs in a thread of the pool."""
        self._before = self._position()
        return self._poll(timeout)

    def _handed_out(self) -> None:
        self._future = self._before = None


def _longest_pause() -> float:
    return min(_LONGEST, _LONGEST_PAUSE * max(1, len(_waiting) / _AT_ONCE))
