"""Bytes through a raw socket, by `sendall` and `recv_into`."""

from __future__ import annotations

import itertools
import os
import socket
import statistics
import time
from contextlib import closing

import pyarrow as pa
from benchmarks.wire.moved import TRIPS, Watch, batch_of_one, distinct, enough

from streamfactory.spi import BatchValidator

BUFFER = 4 * 1024**2
PIECE = 1024**2
WHOLE = socket.MSG_WAITALL
SCHEMA_BYTES = batch_of_one().schema.serialize().size


def raw_sender(medium: str, where: str, rows: int) -> float:
    """Send the bytes of the batches as they are, or serialize each.

    Returns:
        Seconds of the processor.
    """
    found = distinct(rows)
    with accepted(medium, where) as connection:
        if rows <= 1_000:
            watch = Watch()
            for batch in enough(found):
                connection.sendall(batch.serialize())
            return watch.read()[1]
        messages = [memoryview(batch.serialize()) for batch in found]
        size = sum(len(m) for m, _ in zip(itertools.cycle(messages), enough(found)))
        source = memoryview(b"".join(messages))
        watch = Watch()
        starts = itertools.cycle(range(0, len(source) - PIECE, PIECE))
        while size > 0:
            start = next(starts)
            connection.sendall(source[start : start + min(PIECE, size)])
            size -= PIECE
        return watch.read()[1]


def whole_sender(medium: str, where: str, rows: int) -> float:
    """Send the batches as messages, as `raw_sender` does, each as a whole.

    Returns:
        Seconds of the processor.
    """
    found = distinct(rows)
    with accepted(medium, where) as connection:
        messages = [memoryview(batch.serialize()) for batch in found]
        connection.sendall(found[0].schema.serialize())
        connection.sendall(len(messages[0]).to_bytes(8, "little"))
        watch = Watch()
        if rows <= 1_000:
            for batch in enough(found):
                connection.sendall(batch.serialize())
        else:
            for message, _ in zip(itertools.cycle(messages), enough(found)):
                connection.sendall(message)
        return watch.read()[1]


def read_validated(medium: str, where: str) -> tuple[float, float]:
    """Read batches of one known length each, and validate them: the ceiling.

    No reader of foreign bytes can do less. It parses no header, waits in the system
    for whole messages, and has no deadlines.
    """
    with connected(medium, where) as connection:
        schema = pa.ipc.read_schema(pa.py_buffer(_exactly(connection, SCHEMA_BYTES)))
        size = int.from_bytes(_exactly(connection, 8), "little")
        validator, watch = BatchValidator(schema), None
        while True:
            message = pa.allocate_buffer(size)
            if connection.recv_into(memoryview(message), size, WHOLE) < size:
                break
            validator.validate(pa.ipc.read_record_batch(message, schema))
            watch = watch or Watch()
        assert watch is not None
        return watch.read()


def _exactly(connection: socket.socket, size: int) -> bytes:
    return connection.recv(size, WHOLE)


def read_raw(medium: str, where: str) -> tuple[float, float]:
    """Read until there is no more."""
    buffer = bytearray(PIECE)
    with connected(medium, where) as connection:
        connection.recv_into(buffer)
        watch = Watch()
        while connection.recv_into(buffer):
            pass
        return watch.read()


def bare_echo(medium: str, where: str, _rows: int) -> float:
    """Send back whatever comes.

    Returns:
        Seconds of the processor for each trip.
    """
    with accepted(medium, where) as connection:
        watch = Watch()
        while data := connection.recv(4096):
            connection.sendall(data)
        return watch.read()[1] / TRIPS


def trips_bare(medium: str, where: str) -> tuple[float, float]:
    """Send the bytes of a row there and back."""
    message = batch_of_one().serialize().to_pybytes()
    with connected(medium, where) as connection:
        seconds, watch = [], Watch()
        for _ in range(TRIPS):
            started = time.perf_counter()
            connection.sendall(message)
            left = len(message)
            while left:
                left -= len(connection.recv(4096))
            seconds.append(time.perf_counter() - started)
        busy = watch.read()[1]
    return statistics.median(seconds), busy / TRIPS


def eventfd_echo(where: str) -> float:
    """Answer each event by one: the least that wakes another process and back.

    Returns:
        Seconds of the processor for each trip.
    """
    with accepted("unix", where) as connection:
        _, (there, back), _, _ = socket.recv_fds(connection, 1, 2)
        watch = Watch()
        for _ in range(TRIPS):
            os.eventfd_read(there)
            os.eventfd_write(back, 1)
        busy = watch.read()[1]
        os.close(there)
        os.close(back)
    return busy / TRIPS


def trips_eventfd(where: str) -> tuple[float, float]:
    """Send an event there and back."""
    there, back, seconds = os.eventfd(0), os.eventfd(0), list[float]()
    with connected("unix", where) as connection:
        socket.send_fds(connection, [b"x"], [there, back])
        watch = Watch()
        for _ in range(TRIPS):
            started = time.perf_counter()
            os.eventfd_write(there, 1)
            os.eventfd_read(back)
            seconds.append(time.perf_counter() - started)
        busy = watch.read()[1]
    os.close(there)
    os.close(back)
    return statistics.median(seconds), busy / TRIPS


def tuned(medium: str) -> socket.socket:
    """A socket with the settings of ours."""
    made = socket.socket(socket.AF_UNIX if medium == "unix" else socket.AF_INET)
    set_buffers(made)
    if medium == "tcp":
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


def set_buffers(made: socket.socket) -> None:
    """The sizes of ours, which an accepted Unix socket does not inherit."""
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        made.setsockopt(socket.SOL_SOCKET, option, BUFFER)


def accepted(medium: str, where: str) -> socket.socket:
    """The first connection to a server."""
    with closing(listening(medium, where)) as server:
        connection, _ = server.accept()
    set_buffers(connection)
    return connection


def listening(medium: str, where: str) -> socket.socket:
    """A server."""
    server = tuned(medium)
    if medium == "tcp":
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("127.0.0.1", int(where)))
    else:
        server.bind(f"{where}/0")
    server.listen()
    return server


def connected(medium: str, where: str) -> socket.socket:
    """A connection, as soon as the peer listens."""
    deadline = time.monotonic() + 60
    while True:
        made = tuned(medium)
        try:
            made.connect(
                f"{where}/0" if medium == "unix" else ("127.0.0.1", int(where))
            )
        except OSError:
            made.close()
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return made
