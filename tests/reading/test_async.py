"""Streams in asyncio: `async for`, cancellation, deadlines, many streams, closing."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.reading.test_open import Clicks
from tests.specimens import PARTITION_0, Author, ids, rows

from streamfactory.spi import (
    ClosedError,
    Fetched,
    MisuseError,
    PermanentError,
    TopicNotFound,
)

if TYPE_CHECKING:
    from streamfactory.spi import FetchLimits, MessageBatch
    from streamfactory.wiring.streams.stream import Stream

PATIENCE = 60
"""Seconds until a test gives up."""


def run(coroutine: Any) -> Any:
    async def bounded() -> Any:
        return await asyncio.wait_for(coroutine, PATIENCE)

    return asyncio.run(bounded())


def numbers(batch: MessageBatch) -> list[int]:
    return list(batch.rows.column("id").to_pylist())


def test_async_for_reads_to_the_end() -> None:
    clicks = Clicks(2)
    clicks.add(1, 2)
    clicks.add(3, partition=1)

    async def read() -> list[int]:
        async with clicks.open() as stream:
            return sorted([n async for batch in stream for n in numbers(batch)])

    assert run(read()) == [1, 2, 3]


def test_a_followed_stream_hands_out_batches_as_they_are_written() -> None:
    clicks = Clicks()

    async def read() -> list[int]:
        found = []
        async with clicks.open(follow=True) as stream:
            clicks.add(1)
            async for batch in stream:
                found += numbers(batch)
                if len(found) == 3:
                    return found
                clicks.add(len(found) + 1)
        return []

    assert run(read()) == [1, 2, 3]


def test_the_event_loop_runs_while_a_stream_waits() -> None:
    clicks = Clicks()

    async def read() -> int:
        turns = 0
        async with clicks.open(follow=True) as stream:
            waiting = asyncio.ensure_future(anext(aiter(stream)))
            while turns < 50:
                await asyncio.sleep(0.001)
                turns += 1
            assert not waiting.done()
            clicks.add(1)
            assert numbers(await waiting) == [1]
        return turns

    assert run(read()) == 50


def test_a_deadline_is_no_end_and_loses_nothing() -> None:
    clicks = Clicks()

    async def read() -> list[int]:
        found = []
        async with clicks.open(follow=True) as stream:
            batches = aiter(stream)
            for number in range(20):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.005):
                        await anext(batches)
                clicks.add(number)
                found += numbers(await anext(batches))
        return found

    assert run(read()) == list(range(20))


class Held:
    """An author that answers when it is allowed to, and says that it was asked."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.go_on = threading.Event()
        self.author = Author(self._step, rows(2, 1), latest=3)

    def _step(self, start: int, end: int | None, limits: FetchLimits) -> Fetched:
        self.asked.set()
        assert self.go_on.wait(PATIENCE)
        return Fetched(ids(0, 1), 2)


async def cancelled_while_fetching(held: Held, stream: Stream) -> None:
    waiting = asyncio.ensure_future(anext(aiter(stream)))
    assert await asyncio.to_thread(held.asked.wait, PATIENCE)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


def test_a_batch_fetched_for_a_cancelled_wait_comes_with_the_next() -> None:
    held = Held()

    async def read() -> None:
        async with held.author.open() as stream:
            await cancelled_while_fetching(held, stream)
            held.go_on.set()
            batches = aiter(stream)
            assert numbers(await anext(batches)) == [0, 1]
            assert stream.position[PARTITION_0] == 2
            assert numbers(await anext(batches)) == [2]

    run(read())


def test_the_position_excludes_a_batch_that_was_not_received() -> None:
    held = Held()

    async def read() -> None:
        async with held.author.open() as stream:
            await cancelled_while_fetching(held, stream)
            held.go_on.set()
            deadline = time.monotonic() + PATIENCE
            while stream.counters.rows < 2:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.001)
            assert stream.position[PARTITION_0] == 0
            # The same batch for a reader that is not asynchronous.
            batch = stream.next_batch(PATIENCE)
            assert batch is not None
            assert numbers(batch) == [0, 1]
            assert stream.position[PARTITION_0] == 2

    run(read())


def test_a_group_does_not_commit_a_batch_that_was_not_received() -> None:
    held = Held()
    options = {
        "stream__script__consumer__type": "highlevel",
        "group__id": "g",
        "checkpoint__location": "checkpoints",
        "startingOffsets": "earliest",
    }

    async def read() -> None:
        async with held.author.open(options=options) as stream:
            await cancelled_while_fetching(held, stream)
            held.go_on.set()
            with pytest.raises(MisuseError, match="was not returned yet"):
                await asyncio.to_thread(stream.commit)
            assert numbers(await anext(aiter(stream))) == [0, 1]
            assert stream.commit()[PARTITION_0] == 2

    run(read())


def test_two_tasks_cannot_wait_for_one_stream() -> None:
    clicks = Clicks()

    async def read() -> None:
        async with clicks.open(follow=True) as stream:
            first = asyncio.ensure_future(anext(aiter(stream)))
            await asyncio.sleep(0)
            with pytest.raises(MisuseError, match="two tasks iterate over one stream"):
                await anext(aiter(stream))
            clicks.add(1)
            assert numbers(await first) == [1]

    run(read())


def test_closing_ends_the_iteration_of_a_followed_stream() -> None:
    clicks = Clicks()

    async def read() -> int:
        stream = clicks.open(follow=True)

        async def count() -> int:
            return sum([1 async for _ in stream])

        counting = asyncio.ensure_future(count())
        await asyncio.sleep(0.01)
        await stream.aclose()
        found = await counting
        with pytest.raises(ClosedError):
            aiter(stream)
        return found

    assert run(read()) == 0


def test_closing_a_stream_with_an_end_is_no_end() -> None:
    held = Held()

    async def read() -> None:
        stream = held.author.open()
        waiting = asyncio.ensure_future(anext(aiter(stream)))
        assert await asyncio.to_thread(held.asked.wait, PATIENCE)
        closing = asyncio.ensure_future(stream.aclose())
        assert stream._rotation is not None
        reader = stream._rotation._cursors[0].reader
        assert reader is not None
        assert await asyncio.to_thread(reader._closed.wait, PATIENCE)
        held.go_on.set()
        await closing
        with pytest.raises(ClosedError):
            await waiting

    run(read())


def test_an_error_of_the_source_reaches_the_task() -> None:
    async def read() -> None:
        async with Author(TopicNotFound("gone"), latest=3).open() as stream:
            async for _ in stream:
                pass

    with pytest.raises(PermanentError, match="gone"):
        run(read())


def test_many_streams_share_a_bounded_pool() -> None:
    streams = 200
    clicks = [Clicks() for _ in range(streams)]
    most = 0

    async def read(one: Clicks) -> int:
        nonlocal most
        async with one.open(follow=True) as stream:
            async for batch in stream:
                most = max(most, threading.active_count())
                return int(batch.num_rows)
        return 0

    async def every() -> int:
        readers = [asyncio.ensure_future(read(one)) for one in clicks]
        await asyncio.sleep(0.2)
        for one in clicks:
            one.add(1)
        return sum(await asyncio.gather(*readers))

    before = threading.active_count()
    assert run(every()) == streams
    # The pool, and the event loop's own threads, which close the streams.
    assert most - before <= 2 * 32


def test_a_poll_that_is_not_over_keeps_other_readers_waiting() -> None:
    held = Held()

    async def read() -> None:
        async with held.author.open() as stream:
            await cancelled_while_fetching(held, stream)
            assert stream.next_batch(0.01) is None
            held.go_on.set()
            assert [n for batch in stream for n in numbers(batch)] == [0, 1, 2]

    run(read())
