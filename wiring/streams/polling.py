"""Batches of a stream for asyncio: polled in a bounded pool of threads.

A stream has no thread of its own. While few streams wait, each waits in the pool, and
a batch is there at once; when more wait than the pool has room for, they are polled
without waiting, and their tasks sleep in between.
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
"""Threads of the pool of a process, for all of its streams."""
_WAIT: Final = 0.25
"""Seconds that a poll waits in the pool while there is room."""
_SHORTEST_PAUSE: Final = 0.001
_LONGEST_PAUSE: Final = 0.05
"""Seconds between polls of an idle stream, for up to `_AT_ONCE` streams; more streams
pause longer, so that idle ones cost the same together."""
_AT_ONCE: Final = 64
_LONGEST: Final = 1.0

_lock = threading.Lock()
_pools: Final[dict[int, ThreadPoolExecutor]] = {}
"""By process: a forked child has none of the threads."""
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

    A wait that is cancelled loses no batch: what its poll fetches comes with the next
    wait.

    Args:
        poll: Answers the next batch, or None when none came within so many seconds.
        position: The next offsets after the last batch that ``poll`` answered.
        finished: Whether the stream is at its end.
        ends: Whether a `ClosedError` is the end of the iteration.
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
        """The position before a batch that was fetched and not handed out."""
        return self._before

    def take(self, timeout: float) -> tuple[bool, MessageBatch | None]:
        """What a cancelled wait left, for a reader that is not asynchronous.

        Args:
            timeout: Seconds to wait for its poll.

        Returns:
            Whether the poll is over, and its batch, if it has one.
        """
        future = self._future
        if future is None:
            return True, None
        if not wait([future], timeout).done:
            return False, None
        self._handed_out()
        return True, None if future.cancelled() else future.result()

    def check_handed_out(self, stream: str) -> None:
        """Refuse to go on while there is a batch that nobody received.

        Raises:
            MisuseError: misuse; a cancelled wait left a batch.
        """
        future = self._future
        if future is None or future.cancelled():
            return
        if future.exception() is None and future.result() is not None:
            msg = "a batch that was fetched for a cancelled wait was not handed out yet"
            raise MisuseError(msg, stream=stream, remedy="read it before commit")

    def __aiter__(self) -> AsyncBatches:
        return self

    async def __anext__(self) -> MessageBatch:
        if id(self) in _waiting:
            msg = "two tasks wait for one stream"
            raise MisuseError(msg, remedy="open the stream once for each")
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
        """In a thread of the pool."""
        self._before = self._position()
        return self._poll(timeout)

    def _handed_out(self) -> None:
        self._future = self._before = None


def _longest_pause() -> float:
    return min(_LONGEST, _LONGEST_PAUSE * max(1, len(_waiting) / _AT_ONCE))
