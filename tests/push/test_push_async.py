"""Push tables in an event loop."""

from __future__ import annotations

import asyncio

import pytest
from tests.push.pushing import NUMBERS, Producer, numbers, values

from streamfactory import push_table
from streamfactory.push import StopPushing
from streamfactory.push.channel import Channel
from streamfactory.spi import ProducerFailed, ReaderFailed, StreamTimeout


def test_coroutines_on_both_sides_share_one_loop() -> None:
    sink, table = push_table(NUMBERS, capacity_batches=1)

    async def produce() -> None:
        with sink:
            for first in range(0, 500, 10):
                await sink.write_async(numbers(first))

    async def consume() -> list[int]:
        return [n async for rows in table for n in values([rows])]

    async def both() -> list[int]:
        _, found = await asyncio.gather(produce(), consume())
        return found

    assert asyncio.run(both()) == list(range(500))


def test_a_thread_pushes_to_a_coroutine() -> None:
    sink, table = push_table(NUMBERS, capacity_batches=2)

    def work() -> None:
        with sink:
            for first in range(0, 500, 10):
                sink.write(numbers(first))

    async def consume() -> list[int]:
        return [n async for rows in table for n in values([rows])]

    producer = Producer(work)
    assert asyncio.run(consume()) == list(range(500))
    assert producer.join() is None


def test_a_cancelled_write_has_queued_nothing() -> None:
    sink, table = push_table(NUMBERS, capacity_batches=1)

    async def work() -> None:
        await sink.write_async(numbers(0))
        waiting = asyncio.create_task(sink.write_async(numbers(10)))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        with pytest.raises(StreamTimeout, match=r"within 0.01 s"):
            await sink.write_async(numbers(20), timeout=0.01)

    asyncio.run(work())
    sink.close()
    assert values(table) == list(range(10))


def test_a_scan_that_is_left_ends_the_producer() -> None:
    sink, table = push_table(NUMBERS, capacity_batches=1)

    async def consume() -> None:
        async for _ in table:
            break

    async def produce() -> None:
        while True:
            await sink.write_async(numbers(0))

    async def both() -> None:
        producing = asyncio.create_task(produce())
        await consume()
        with pytest.raises(StopPushing):
            await producing

    asyncio.run(both())


def test_a_failure_reaches_a_coroutine_that_waits() -> None:
    sink, table = push_table(NUMBERS)

    async def consume() -> None:
        async for _ in table:
            pass

    async def both() -> None:
        reading = asyncio.create_task(consume())
        await asyncio.sleep(0)
        sink.fail("over")
        with pytest.raises(ProducerFailed, match="over"):
            await reading

    asyncio.run(both())


def test_kept_rows_are_read_in_coroutines() -> None:
    sink, table = push_table(NUMBERS, keep="memory")

    async def both() -> list[int]:
        with sink:
            await sink.write_async(numbers(0))
        return [n async for rows in table for n in values([rows])]

    assert asyncio.run(both()) == list(range(10))


def test_waits_that_are_over_leave_nothing_behind() -> None:
    sink, _table = push_table(NUMBERS, capacity_batches=1)
    sink.write(numbers(0))

    async def work() -> None:
        for _ in range(3):
            with pytest.raises(StreamTimeout):
                await sink.write_async(numbers(10), timeout=0.01)

    asyncio.run(work())
    channel = sink._store
    assert isinstance(channel, Channel)
    assert not channel.lanes[0].room._coroutines


@pytest.mark.parametrize("keep", [None, "memory"])
def test_a_cancelled_wait_of_the_reader_loses_no_row(keep: str | None) -> None:
    sink, table = push_table(NUMBERS, keep=keep)

    async def work() -> list[int]:
        scan = aiter(table)
        for _ in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await anext(scan)
        async with sink:
            await sink.write_async(numbers(0))
        return [n async for rows in scan for n in values([rows])]

    assert asyncio.run(work()) == list(range(10))


def test_an_error_in_an_asynchronous_block_reaches_the_producer() -> None:
    sink, table = push_table(NUMBERS)

    async def work() -> None:
        async with table:
            raise ValueError("in the block")

    with pytest.raises(ValueError, match="in the block"):
        asyncio.run(work())
    with pytest.raises(ReaderFailed, match="in the block"):
        sink.write(numbers(0))
