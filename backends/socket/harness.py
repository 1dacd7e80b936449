"""Harness of the conformance kit: a writer and a reader in plain pyarrow.

The writer sends the whole stream to every connection, as a program that sends a file
would. The reader listens at a separate address and keeps what every connection sent.
"""

from __future__ import annotations

import socket
import socketserver
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_SCHEMA: Final = pa.schema([pa.field("number", pa.int64())])


class _Server(socketserver.ThreadingUnixStreamServer):
    """Serves one partition."""

    daemon_threads = False
    block_on_close = True

    def __init__(self, path: Path) -> None:
        super().__init__(str(path), _Handler)
        self.changed = threading.Condition()
        self.numbers: list[list[int]] = []
        self.stopped = False
        self._open: set[socket.socket] = set()
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,))
        self._thread.start()

    def append(self, numbers: Sequence[int]) -> None:
        with self.changed:
            self.numbers.append(list(numbers))
            self.changed.notify_all()

    def stop(self) -> None:
        with self.changed:
            self.stopped = True
            self.changed.notify_all()
            for connection in self._open:
                with suppress(OSError):  # the reader was first
                    connection.shutdown(2)
        self.shutdown()
        self._thread.join()
        self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self.changed:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self.changed:
            self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore readers that disconnect; print other errors."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        self.wfile.write(_SCHEMA.serialize())
        server, at = self.server, 0
        while True:
            with server.changed:
                while not (server.stopped or server.numbers[at:]):
                    server.changed.wait()
                if server.stopped:
                    return
                found = server.numbers[at:]
            for numbers in found:
                rows = pa.record_batch([pa.array(numbers, pa.int64())], schema=_SCHEMA)
                self.wfile.write(rows.serialize())
            at += len(found)


class _Listener:
    """Reads one partition on demand.

    Data that a writer has passed to the system stays in the socket until then.
    """

    def __init__(self, path: Path) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._connections: list[tuple[socket.socket, bytearray]] = []
        try:
            self._listener.bind(str(path))
            self._listener.listen()
            self._listener.setblocking(False)
        except OSError:
            self._listener.close()
            raise

    def batches(self) -> list[pa.RecordBatch]:
        with suppress(BlockingIOError):
            while True:
                self._connections.append((self._listener.accept()[0], bytearray()))
        found = []
        for connection, data in self._connections:
            with suppress(BlockingIOError, ConnectionResetError):
                while part := connection.recv(2**20, socket.MSG_DONTWAIT):
                    data.extend(part)
            with suppress(pa.ArrowInvalid):  # at the end of the complete messages
                for rows in pa.ipc.open_stream(bytes(data)):
                    found.append(rows)  # noqa: PERF402 - keeps batches before an error
        return found

    def stop(self) -> None:
        for connection, _ in self._connections:
            connection.close()
        self._listener.close()


class SocketHarness:
    """Unix sockets in the folder of the case."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._servers: list[_Server] = []
        self._listeners: list[_Listener] = []

    def create(self, partitions: int) -> None:
        self.close()
        for number in range(partitions):
            self._servers.append(_Server(self._folder / f"{number}.sock"))
            self._listeners.append(_Listener(self._folder / f"{number}.sink"))

    def properties(self) -> Mapping[str, str]:
        return self._connected("sock")

    def sink_properties(self) -> Mapping[str, str]:
        return self._connected("sink")

    def _connected(self, suffix: str) -> Mapping[str, str]:
        last = len(self._servers) - 1
        return {
            "streamType": "socket",
            "stream.socket.connect": f"unix:{self._folder}/{{0-{last}}}.{suffix}",
        }

    def partitions(self) -> Sequence[int]:
        return range(len(self._servers))

    def write(self, partition: int, numbers: Sequence[int]) -> None:
        self._servers[partition].append(numbers)

    def numbers(self, rows: pa.RecordBatch) -> list[int]:
        found: list[int] = rows.column("number").to_pylist()
        return found

    def rows(self, numbers: Sequence[int]) -> pa.RecordBatch:
        return pa.record_batch([pa.array(numbers, pa.int64())], schema=_SCHEMA)

    def visible(self) -> Mapping[int, Sequence[int]]:
        return {
            number: [n for rows in listener.batches() for n in self.numbers(rows)]
            for number, listener in enumerate(self._listeners)
        }

    def close(self) -> None:
        while self._listeners:
            self._listeners.pop().stop()
            (self._folder / f"{len(self._listeners)}.sink").unlink(missing_ok=True)
        while self._servers:
            server = self._servers.pop()
            server.stop()
            (self._folder / f"{len(self._servers)}.sock").unlink(missing_ok=True)
