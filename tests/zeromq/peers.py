"""Other sides of zeromq streams: plain pyzmq, frames built by hand, and sinks."""

from __future__ import annotations

import os
import struct
import threading
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import zmq

from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from streamfactory.spi import Loss
    from streamfactory.wiring.streams.stream import Stream
    from streamfactory.wiring.writing.sink import Sink

DEADLINE = 15.0
SCHEMA = pa.schema([pa.field("number", pa.int64())])
FRAME = struct.Struct("<4sB3xI16s16sqqq")
ROWS, MARK, END, BROKEN, HELLO, WELCOME, STORED, FENCED = range(1, 9)


def properties(pattern: str, **options: str) -> dict[str, str]:
    """A configuration; ``__`` stands for a dot."""
    given = {
        "streamType": "zeromq",
        "stream.zeromq.topic.name": "numbers",
        "stream.zeromq.pattern": pattern,
    }
    for key, text in options.items():
        given[f"stream.zeromq.{key.replace('__', '.')}"] = text
    return given


def rows(numbers: Iterable[int]) -> pa.RecordBatch:
    return pa.record_batch([pa.array(numbers, pa.int64())], schema=SCHEMA)


def frame(
    kind: int,
    stream: bytes,
    first: int,
    behind: int,
    *,
    after: int | None = None,
    schema: pa.Schema | None = SCHEMA,
    session: bytes = bytes(16),
) -> bytes:
    """A first frame."""
    after = first if after is None else after
    numbers = (after, first, behind)
    text = b"" if schema is None else schema.serialize().to_pybytes()
    return FRAME.pack(b"SFZ1", kind, 0, stream, session, *numbers) + text


def batch(
    stream: bytes, first: int, numbers: Iterable[int], **more: Any
) -> list[bytes]:
    """A sequenced message."""
    made = rows(numbers)
    header = frame(ROWS, stream, first, first + made.num_rows, **more)
    return [header, made.serialize().to_pybytes()]


class Peers:
    """Sockets of plain pyzmq, of one context."""

    def __init__(self) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._sockets: list[zmq.Socket[bytes]] = []
        self._threads: list[threading.Thread] = []
        self._errors: list[BaseException] = []

    def socket(self, kind: int, **options: Any) -> zmq.Socket[bytes]:
        made: zmq.Socket[bytes] = self.context.socket(kind)
        made.linger = 0
        made.sndtimeo = made.rcvtimeo = int(DEADLINE * 1000)
        for name, value in options.items():
            setattr(made, name, value)
        self._sockets.append(made)
        return made

    def write(self, given: dict[str, str], work: Callable[[Sink], object]) -> None:
        """Write in a thread; what fails there fails the test."""

        def run() -> None:
            try:
                with open_sink(given) as sink:
                    work(sink)
            except BaseException as error:
                self._errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        self._threads.append(thread)

    def run(self, work: Callable[[], object]) -> Work:
        """Call something in a thread."""
        made = Work(work)
        self._threads.append(made.thread)
        return made

    def join(self) -> None:
        """Wait for the writers.

        Raises:
            BaseException: What one of them raised.
        """
        while self._threads:
            self._threads.pop().join(DEADLINE)
        if self._errors:
            raise self._errors.pop()

    def close(self) -> None:
        for thread in self._threads:
            thread.join(DEADLINE)
        self._threads.clear()
        for socket in self._sockets:
            socket.close()
        self.context.term()


class Work:
    """Something that runs in a thread; called, it waits, and raises what it raised."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work
        self._error: BaseException | None = None
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def is_done(self) -> bool:
        return not self.thread.is_alive()

    def __call__(self) -> None:
        self.thread.join(DEADLINE)
        assert self.is_done()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self._error = error


def subscribed(socket: zmq.Socket[bytes]) -> None:
    """Wait for the first subscription."""
    assert socket.recv()[:1] == b"\1"


def numbers_of(
    stream: Stream, count: int, column: str = "number"
) -> tuple[list[int], list[Loss]]:
    """So many numbers, and the losses before and among them."""
    found: list[int] = []
    losses: list[Loss] = []
    deadline = time.monotonic() + DEADLINE
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} rows came"
        got = stream.next_batch(0.2)
        if got is not None:
            found += got.rows.column(column).to_pylist()
            losses += got.losses
    return found, losses


def new_stream() -> bytes:
    return os.urandom(16)
