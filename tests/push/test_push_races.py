"""Both halves of a push table end at the same moment, a thousand times each."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.push.pushing import DEADLINE, NUMBERS, numbers, values

from streamfactory import push_table
from streamfactory.push import StopPushing
from streamfactory.spi import ClosedError, MisuseError, ProducerFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamfactory.push import PushSink, PushTable

ROUNDS = 1000


class Pair:
    """Two threads that begin each round together."""

    def __init__(
        self, one: Callable[[int], None], other: Callable[[int], None]
    ) -> None:
        self._barrier = threading.Barrier(2)
        self._errors: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._run, args=(w,)) for w in (one, other)
        ]

    def run(self) -> None:
        for thread in self._threads:
            thread.start()
        for thread in self._threads:
            thread.join(DEADLINE * 2)
            assert not thread.is_alive()
        assert not self._errors

    def _run(self, work: Callable[[int], None]) -> None:
        try:
            for number in range(ROUNDS):
                self._barrier.wait(DEADLINE)
                work(number)
        except BaseException as error:
            self._errors.append(error)
            self._barrier.abort()


def pairs() -> list[tuple[PushSink, PushTable]]:
    """A table for each round, full."""
    made = []
    for _ in range(ROUNDS):
        sink, table = push_table(NUMBERS, capacity_batches=1)
        sink.write(numbers(0))
        made.append((sink, table))
    return made


@pytest.mark.parametrize("end", ["close", "fail"])
def test_an_end_against_a_write_that_waits(end: str) -> None:
    made = pairs()

    def write(number: int) -> None:
        with pytest.raises(ClosedError):
            made[number][0].write(numbers(10))

    def finish(number: int) -> None:
        sink = made[number][0]
        if end == "close":
            sink.close()
        else:
            sink.fail("over")

    Pair(write, finish).run()
    for sink, table in made:
        assert sink.statistics.rows_pushed == 10
        scan = iter(table)
        assert values([next(scan)]) == list(range(10))
        with pytest.raises(StopIteration if end == "close" else ProducerFailed):
            next(scan)


def test_a_reader_that_stops_against_a_write_that_waits() -> None:
    made = pairs()

    def write(number: int) -> None:
        sink, one = made[number][0], numbers(10)
        with pytest.raises(StopPushing):
            sink.write(pa.Table.from_batches([one] * 100).to_reader())

    def stop(number: int) -> None:
        scan = iter(made[number][1])
        next(scan)
        scan.close()  # type: ignore[attr-defined]

    Pair(write, stop).run()
    assert not any(sink.statistics.queued_batches for sink, _ in made)


def test_the_last_write_against_the_reader() -> None:
    made = pairs()
    found: list[list[int]] = []

    def write(number: int) -> None:
        sink = made[number][0]
        sink.write(numbers(10))
        sink.close()

    def read(number: int) -> None:
        found.append(values(made[number][1]))

    Pair(write, read).run()
    assert found == [list(range(20))] * ROUNDS


def test_two_scans_at_once_are_one_scan() -> None:
    made = pairs()
    for sink, _ in made:
        sink.close()
    found: list[tuple[int, int]] = []

    def scan(number: int) -> None:
        with suppress(MisuseError):
            found.append((number, len(values(made[number][1]))))

    Pair(scan, scan).run()
    assert sorted(found) == [(number, 10) for number in range(ROUNDS)]
