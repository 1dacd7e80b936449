"""The other side: plain sockets and plain pyarrow, nothing of the code under test."""

from __future__ import annotations

import io
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streamfactory.wiring.config.configure import configure
from streamfactory.wiring.config.definition import from_mapping
from streamfactory.wiring.plugins.manager import default_manager
from streamfactory.wiring.reading.source import Source
from streamfactory.wiring.streams.stream import Stream, open_stream
from streamfactory.wiring.writing.sink import Sink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

PATIENCE = 90.0
"""Seconds in which anything on one machine happens."""
DIALLED: list[socket.socket] = []
"""Connections of the running test, which are closed after it."""
SCHEMA = pa.schema([pa.field("n", pa.int64())])


def rows(*numbers: int) -> pa.RecordBatch:
    """A batch of numbers."""
    return pa.record_batch([pa.array(numbers, pa.int64())], schema=SCHEMA)


def numbers_of(batches: Iterable[Any]) -> list[int]:
    """The numbers of some batches, ours or Arrow's."""
    found: list[int] = []
    for batch in batches:
        found += getattr(batch, "rows", batch).column("n").to_pylist()
    return found


def stream_of(
    *batches: pa.RecordBatch,
    schema: pa.Schema = SCHEMA,
    end: bool = True,
    compression: str | None = None,
) -> bytes:
    """The bytes of a stream, as pyarrow writes them."""
    file = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(file, schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    whole = file.getvalue()
    return whole if end else whole[:-8]


def properties_of(**options: str) -> dict[str, str]:
    """Properties, with ``__`` for a dot; ``x_`` begins a word of the framework."""
    found = {"streamType": "socket"}
    for key, value in options.items():
        name = key.replace("__", ".")
        own = not name.startswith("x_")
        found[f"stream.socket.{name}" if own else name.removeprefix("x_")] = value
    return found


def opened(**options: str) -> Stream:
    """The stream, open for reading."""
    return open_stream(properties_of(**options))


def source_of(**options: str) -> Source:
    """The stream's source."""
    definition = from_mapping(properties_of(**options))
    return Source(configure(definition, default_manager(), use="read"))


def sink_of(**options: str) -> Sink:
    """The stream, for writing."""
    definition = from_mapping(properties_of(**options))
    return Sink(configure(definition, default_manager(), use="write"))


def dialled(port: int) -> socket.socket:
    """A connection to a port, as soon as somebody listens there."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            made = socket.create_connection(("127.0.0.1", port), PATIENCE)
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        else:
            made.settimeout(PATIENCE)
            DIALLED.append(made)
            return made


def until(condition: Callable[[], object]) -> None:
    """Wait for something, with a deadline."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def is_cut(connection: socket.socket) -> bool:
    """Whether the other side closes, or breaks off, before it says a whole word."""
    try:
        while data := connection.recv(4096):
            assert len(data) < 8
    except ConnectionError:
        return True
    return True


class Background:
    """A call in another thread, with what came of it."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self._result: Any = None
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def is_done(self) -> bool:
        """Whether it has come back."""
        return not self._thread.is_alive()

    def result(self) -> Any:
        """What it returned, or raises."""
        self._thread.join(PATIENCE)
        assert self.is_done, "it does not come back"
        if self.error is not None:
            raise self.error
        return self._result

    def _run(self) -> None:
        try:
            self._result = self._function()
        except BaseException as error:
            self.error = error


class Writer:
    """A program that sends a stream to a port, as instructed."""

    def __init__(self, port: int, schema: pa.Schema = SCHEMA) -> None:
        self.socket = dialled(port)
        self.socket.sendall(schema.serialize())

    def send(self, *numbers: int) -> None:
        """Send a batch."""
        self.socket.sendall(rows(*numbers).serialize())

    def finish(self) -> None:
        """Send the marker of the end, and close."""
        self.socket.sendall(b"\xff\xff\xff\xff\0\0\0\0")
        self.socket.close()

    def tear(self) -> None:
        """Close without a word."""
        self.socket.close()


def read_plainly(connection: socket.socket) -> list[pa.RecordBatch]:
    """All batches, by pyarrow; raises what pyarrow raises."""
    with connection, connection.makefile("rb") as file:
        return list(pa.ipc.open_stream(file))
