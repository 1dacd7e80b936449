"""Batches of numbers, and producers in threads."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from streamfactory.push import StopPushing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from streamfactory.push import PushSink

NUMBERS = pa.schema([pa.field("number", pa.int64())])
DEADLINE = 60.0
"""Seconds that anything may take on a busy machine."""


def numbers(first: int, count: int = 10) -> pa.RecordBatch:
    """Rows that count up."""
    return pa.record_batch([pa.arange(first, first + count)], schema=NUMBERS)


def values(batches: Iterable[pa.RecordBatch]) -> list[int]:
    """The numbers of all batches."""
    return [n for rows in batches for n in rows.column(0).to_pylist()]


class Producer:
    """A thread that writes, and what it ended with."""

    def __init__(self, work: Callable[[], object]) -> None:
        self.error: BaseException | None = None
        self._work = work
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self.error = error

    def join(self) -> BaseException | None:
        """Wait for its end; answers what it raised."""
        self._thread.join(DEADLINE)
        assert not self._thread.is_alive()
        return self.error


@contextmanager
def producing(sink: PushSink, batches: Iterable[pa.RecordBatch]) -> Iterator[Producer]:
    """Pushes from a thread, and closes the sink; it has to end without an error."""

    def work() -> None:
        with sink:
            for rows in batches:
                sink.write(rows)

    producer = Producer(work)
    yield producer
    error = producer.join()
    assert error is None or isinstance(error, StopPushing)


def until(condition: Callable[[], bool]) -> None:
    """Wait for a state of another thread."""
    looked = threading.Event()
    for _ in range(int(DEADLINE / 0.001)):
        if condition():
            return
        looked.wait(0.001)
    msg = "the condition did not come true"
    raise AssertionError(msg)
