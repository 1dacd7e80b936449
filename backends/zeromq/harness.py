"""The conformance kit's access to ``zeromq``: a publisher and a router of plain pyzmq.

They build the frames of docs/zeromq.md themselves. The publisher sends everything again
to whoever subscribes: a reader that subscribed before receives it twice. The router
stores what senders send, and acknowledges it.
"""

from __future__ import annotations

import struct
import threading
import uuid
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import zmq
from zmq.utils import z85

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_SCHEMA: Final = pa.schema([pa.field("number", pa.int64())])
_FRAME: Final = struct.Struct("<4sB3xI16s16sqqq")
_ROWS, _MARK, _HELLO, _WELCOME, _STORED = 1, 2, 5, 6, 7
_LOOK: Final = 5
"""Milliseconds between looks for what a thread has to do."""


class _End:
    """One socket with a thread, which a lock keeps apart from other callers."""

    def __init__(self, path: Path, kind: int, secret: bytes) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.socket: zmq.Socket[bytes] = self._context.socket(kind)
        self.socket.linger = 0
        self.socket.sndhwm = self.socket.rcvhwm = 0
        self.socket.curve_server = True
        self.socket.curve_secretkey = secret
        self.lock = threading.Lock()
        self._stopped = threading.Event()
        self.prepare()
        self.socket.bind(f"ipc://{path}")
        self._thread = threading.Thread(target=self._run, name="zeromq-harness")
        self._thread.start()

    def prepare(self) -> None:
        """Set options of the socket."""

    def meet(self) -> None:
        """Do what a message asks for."""

    def _run(self) -> None:
        while not self._stopped.is_set():
            with self.lock:
                while self.socket.poll(0):
                    self.meet()
            self._stopped.wait(_LOOK / 1000)

    def stop(self) -> None:
        """Close the socket."""
        self._stopped.set()
        self._thread.join()
        self.socket.close()
        self._context.term()


class _Publisher(_End):
    """Serves one partition."""

    def prepare(self) -> None:
        self.socket.setsockopt(zmq.XPUB_VERBOSE, 1)
        self._stream = uuid.uuid4().bytes
        self._batches: list[list[int]] = []

    def append(self, numbers: Sequence[int]) -> None:
        """Publish a batch."""
        with self.lock:
            start = sum(map(len, self._batches))
            self._batches.append([*numbers])
            self._publish(start, numbers)

    def meet(self) -> None:
        if self.socket.recv()[:1] != b"\1":
            return
        self._send(_MARK, 0, 0)
        start = 0
        for numbers in self._batches:
            self._publish(start, numbers)
            start += len(numbers)

    def _publish(self, start: int, numbers: Sequence[int]) -> None:
        rows = pa.record_batch([pa.array(numbers, pa.int64())], schema=_SCHEMA)
        body = rows.serialize().to_pybytes()
        self._send(_ROWS, start, start + len(numbers), body)

    def _send(self, kind: int, first: int, behind: int, *body: bytes) -> None:
        numbers = (first, first, behind)
        frame = _FRAME.pack(b"SFZ1", kind, 0, self._stream, bytes(16), *numbers)
        schema = _SCHEMA.serialize().to_pybytes()
        self.socket.send_multipart([b"", frame + schema, *body])


class _Router(_End):
    """Receives one partition, and acknowledges at once."""

    def prepare(self) -> None:
        self._session = uuid.uuid4().bytes
        self._next: dict[bytes, int] = {}
        self._numbers: list[int] = []

    def numbers(self) -> list[int]:
        """What was received."""
        with self.lock:
            return [*self._numbers]

    def meet(self) -> None:
        sender, frame, *body = self.socket.recv_multipart()
        _, kind, _, stream, _, _, first, behind = _FRAME.unpack_from(frame)
        at = self._next.setdefault(stream, 0)
        if kind == _HELLO:
            self._answer(sender, _WELCOME, stream)
            return
        if kind == _ROWS and behind > at:
            schema = pa.ipc.read_schema(pa.py_buffer(frame[_FRAME.size :]))
            rows = pa.ipc.read_record_batch(pa.py_buffer(body[0]), schema)
            new = rows.column("number").to_pylist()[max(0, at - first) :]
            self._numbers += new
        self._next[stream] = max(at, behind)
        self._answer(sender, _STORED, stream)

    def _answer(self, sender: bytes, kind: int, stream: bytes) -> None:
        numbers = (0, 0, self._next[stream])
        frame = _FRAME.pack(b"SFZ1", kind, 0, stream, self._session, *numbers)
        self.socket.send_multipart([sender, frame])


class ZeromqHarness:
    """Endpoints in the folder of the case."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._server, client = zmq.curve_keypair(), zmq.curve_keypair()
        self._secret = folder / "client.key"
        self._secret.write_text(z85.decode(client[1]).hex(), "ascii")
        self._publishers: list[_Publisher] = []
        self._routers: list[_Router] = []

    def create(self, partitions: int) -> None:
        self.close()
        secret = self._server[1]
        for number in range(partitions):
            path = self._folder / f"{number}.pub"
            self._publishers.append(_Publisher(path, zmq.XPUB, secret))
            path = self._folder / f"{number}.router"
            self._routers.append(_Router(path, zmq.ROUTER, secret))

    def properties(self) -> Mapping[str, str]:
        return self._connected("pub", "pub-sub")

    def sink_properties(self) -> Mapping[str, str]:
        return self._connected("router", "dealer-router")

    def _connected(self, suffix: str, pattern: str) -> Mapping[str, str]:
        last = len(self._publishers) - 1
        return {
            "streamType": "zeromq",
            "stream.zeromq.topic.name": "numbers",
            "stream.zeromq.pattern": pattern,
            "stream.zeromq.connect": f"ipc://{self._folder}/{{0-{last}}}.{suffix}",
            "stream.zeromq.curve.server.key": z85.decode(self._server[0]).hex(),
            "stream.zeromq.curve.secret.key": f"${{file:{self._secret}}}",
        }

    def partitions(self) -> Sequence[int]:
        return range(len(self._publishers))

    def write(self, partition: int, numbers: Sequence[int]) -> None:
        self._publishers[partition].append(numbers)

    def numbers(self, rows: pa.RecordBatch) -> list[int]:
        found: list[int] = rows.column("number").to_pylist()
        return found

    def rows(self, numbers: Sequence[int]) -> pa.RecordBatch:
        return pa.record_batch([pa.array(numbers, pa.int64())], schema=_SCHEMA)

    def visible(self) -> Mapping[int, Sequence[int]]:
        return {number: each.numbers() for number, each in enumerate(self._routers)}

    def close(self) -> None:
        for each in (*self._publishers, *self._routers):
            each.stop()
        self._publishers.clear()
        self._routers.clear()
