"""Harness of the conformance kit: publishers, dealers and routers in plain pyzmq.

They build the frames of docs/zeromq.md themselves. A publisher sends everything again
at each subscription, so an earlier subscriber receives duplicates. A dealer keeps
messages until they are acknowledged. A router stores and acknowledges what it receives.
"""

from __future__ import annotations

import struct
import threading
import time
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar, Final

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
"""Milliseconds between polls of a thread."""
_PATTERN: Final = "stream.zeromq.pattern"
_REPEAT: Final = 0.05
"""Seconds between two introductions of a dealer."""


_Keys = tuple[bytes, bytes]
"""Public and secret."""


class _End:
    """Sockets of one partition and their thread. A lock protects them from callers."""

    def __init__(self) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.sockets: list[zmq.Socket[bytes]] = []
        self.lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="zeromq-harness")
        self._thread.start()

    def bind(self, kind: int, path: Path, secret: bytes) -> None:
        """Open a socket that readers or writers connect to."""
        with self.lock:
            socket = self._made(kind)
            socket.curve_server = True
            socket.curve_secretkey = secret
            socket.bind(f"ipc://{path}")

    def connect(self, kind: int, path: Path, keys: _Keys, server: bytes) -> None:
        """Open a socket that connects to a reader, now or once it is bound."""
        with self.lock:
            socket = self._made(kind)
            socket.immediate = True
            socket.reconnect_ivl = _LOOK
            socket.curve_publickey, socket.curve_secretkey = keys
            socket.curve_serverkey = server
            socket.connect(f"ipc://{path}")

    def process(self, socket: zmq.Socket[bytes]) -> None:
        """Process one message that was received."""
        raise NotImplementedError

    def remind(self) -> None:
        """Send periodic messages."""

    def _made(self, kind: int) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        socket.linger = 0
        socket.sndhwm = socket.rcvhwm = 0
        if kind == zmq.XPUB:
            socket.setsockopt(zmq.XPUB_VERBOSE, 1)
        self.sockets.append(socket)
        return socket

    def _run(self) -> None:
        while not self._stopped.is_set():
            with self.lock:
                for socket in self.sockets:
                    while socket.poll(0):
                        self.process(socket)
                self.remind()
            self._stopped.wait(_LOOK / 1000)

    def stop(self) -> None:
        """Close the sockets."""
        self._stopped.set()
        self._thread.join()
        for socket in self.sockets:
            socket.close()
        self._context.term()


class _Sender(_End):
    """Sends one partition: batches, each with the number of its first row."""

    PREFIX: ClassVar[tuple[bytes, ...]] = ()
    """Frames before the sequence frame."""

    def __init__(self) -> None:
        self._session = uuid.uuid4().bytes
        self._begin()
        super().__init__()

    def append(self, numbers: Sequence[int]) -> None:
        """Send a batch."""
        with self.lock:
            self._batches.append((self._next, [*numbers]))
            self._next += len(numbers)
            for socket in self.sockets:
                self._send_from(socket, self._next - len(numbers))

    def recreate(self) -> None:
        """Begin another stream, whose numbers start at 0."""
        with self.lock:
            self._begin()

    def _begin(self) -> None:
        self._stream = uuid.uuid4().bytes
        self._batches: list[tuple[int, list[int]]] = []
        self._next = 0

    def _send_from(self, socket: zmq.Socket[bytes], offset: int) -> None:
        """Send the batches with rows at or after an offset."""
        for first, numbers in self._batches:
            if first + len(numbers) <= offset:
                continue
            rows = pa.record_batch([pa.array(numbers, pa.int64())], schema=_SCHEMA)
            body = rows.serialize().to_pybytes()
            self._send(socket, _ROWS, (first, first + len(numbers)), body)

    def _send(
        self,
        socket: zmq.Socket[bytes],
        kind: int,
        rows: tuple[int, int],
        *body: bytes,
    ) -> None:
        numbers = (rows[0], *rows)
        frame = _FRAME.pack(b"SFZ1", kind, 0, self._stream, self._session, *numbers)
        frames = [*self.PREFIX, frame + _SCHEMA.serialize().to_pybytes(), *body]
        # Without a peer nothing is queued: it requests what it has not received.
        with suppress(zmq.Again):
            socket.send_multipart(frames, zmq.NOBLOCK)


class _Publisher(_Sender):
    """Sends everything at each subscription."""

    PREFIX = (b"",)

    def process(self, socket: zmq.Socket[bytes]) -> None:
        if socket.recv()[:1] == b"\1":
            self._send(socket, _MARK, (0, 0))
            self._send_from(socket, 0)


class _Dealer(_Sender):
    """Keeps unacknowledged rows; sends them to each reader from its requested row.

    Each reader has a separate socket: a shared DEALER would split the rows among them.
    """

    def __init__(self) -> None:
        self._released = 0
        self._introduced_at = 0.0
        super().__init__()

    def acknowledged(self) -> int:
        """The offset before which all rows were acknowledged."""
        with self.lock:
            return self._released

    def process(self, socket: zmq.Socket[bytes]) -> None:
        _, kind, _, stream, _, _, _, behind = _FRAME.unpack(socket.recv())
        if stream != self._stream:
            return  # a reply to the stream before `recreate`
        if kind == _HELLO:
            self._introduced_at = 0.0
        elif kind == _WELCOME:
            self._send_from(socket, max(behind, self._released))
        elif kind == _STORED:
            self._released = max(self._released, behind)

    def remind(self) -> None:
        """Send HELLO, for new readers and for readers that miss rows."""
        if time.monotonic() - self._introduced_at > _REPEAT:
            self._introduced_at = time.monotonic()
            for socket in self.sockets:
                self._send(socket, _HELLO, (self._released, self._released))

    def _begin(self) -> None:
        super()._begin()
        self._released = 0


class _Router(_End):
    """Receives one partition, and acknowledges at once."""

    def __init__(self) -> None:
        self._session = uuid.uuid4().bytes
        self._next: dict[bytes, int] = {}
        self._numbers: list[int] = []
        super().__init__()

    def numbers(self) -> list[int]:
        """What was received."""
        with self.lock:
            return [*self._numbers]

    def process(self, socket: zmq.Socket[bytes]) -> None:
        sender, frame, *body = socket.recv_multipart()
        _, kind, _, stream, _, _, first, behind = _FRAME.unpack_from(frame)
        at = self._next.setdefault(stream, 0)
        if kind == _HELLO:
            self._answer(socket, sender, _WELCOME, stream)
            return
        if kind == _ROWS and behind > at:
            schema = pa.ipc.read_schema(pa.py_buffer(frame[_FRAME.size :]))
            rows = pa.ipc.read_record_batch(pa.py_buffer(body[0]), schema)
            new = rows.column("number").to_pylist()[max(0, at - first) :]
            self._numbers += new
        self._next[stream] = max(at, behind)
        self._answer(socket, sender, _STORED, stream)

    def _answer(
        self, socket: zmq.Socket[bytes], sender: bytes, kind: int, stream: bytes
    ) -> None:
        numbers = (0, 0, self._next[stream])
        frame = _FRAME.pack(b"SFZ1", kind, 0, stream, self._session, *numbers)
        socket.send_multipart([sender, frame])


class ZeromqPublisherHarness:
    """Reads by pub-sub and writes by dealer-router, in the folder of the case."""

    SENDER: ClassVar[type[_Sender]] = _Publisher

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._server: _Keys = zmq.curve_keypair()
        self._client: _Keys = zmq.curve_keypair()
        self._secrets = {}
        for name, keys in (("server", self._server), ("client", self._client)):
            self._secrets[name] = folder / f"{name}.key"
            self._secrets[name].write_text(_hex(keys[1]), "ascii")
        self._senders: list[_Sender] = []
        self._routers: list[_Router] = []

    def create(self, partitions: int) -> None:
        self.close()
        for number in range(partitions):
            self._senders.append(self.SENDER())
            self._routers.append(_Router())
            path = self._folder / f"{number}.router"
            self._routers[number].bind(zmq.ROUTER, path, self._server[1])
        self._serve()

    def _serve(self) -> None:
        """Open the sockets that readers connect to."""
        for number, sender in enumerate(self._senders):
            path = self._folder / f"{number}.publisher"
            sender.bind(zmq.XPUB, path, self._server[1])

    def properties(self) -> Mapping[str, str]:
        return {**self._at("connect", "publisher"), _PATTERN: "pub-sub"}

    def sink_properties(self) -> Mapping[str, str]:
        return {**self._at("connect", "router"), _PATTERN: "dealer-router"}

    def _at(self, side: str, suffix: str) -> dict[str, str]:
        last = len(self._senders) - 1
        own = {
            "curve.server.key": _hex(self._server[0]),
            "curve.secret.key": f"${{file:{self._secrets['client']}}}",
        }
        if side == "bind":
            own = {
                "curve.allowed.keys": _hex(self._client[0]),
                "curve.secret.key": f"${{file:{self._secrets['server']}}}",
            }
        own["topic.name"] = "numbers"
        own[side] = f"ipc://{self._folder}/{{0-{last}}}.{suffix}"
        options = {f"stream.zeromq.{key}": value for key, value in own.items()}
        return {"streamType": "zeromq", **options}

    def partitions(self) -> Sequence[int]:
        return range(len(self._senders))

    def write(self, partition: int, numbers: Sequence[int]) -> None:
        self._senders[partition].append(numbers)

    def numbers(self, rows: pa.RecordBatch) -> list[int]:
        found: list[int] = rows.column("number").to_pylist()
        return found

    def rows(self, numbers: Sequence[int]) -> pa.RecordBatch:
        return pa.record_batch([pa.array(numbers, pa.int64())], schema=_SCHEMA)

    def visible(self) -> Mapping[int, Sequence[int]]:
        return {number: each.numbers() for number, each in enumerate(self._routers)}

    def close(self) -> None:
        for each in (*self._senders, *self._routers):
            each.stop()
        self._senders.clear()
        self._routers.clear()


class ZeromqHarness(ZeromqPublisherHarness):
    """Reads and writes by dealer-router: what is not acknowledged is sent again.

    Each configuration has separate endpoints, so that a second reader can bind.
    """

    SENDER = _Dealer

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._readers = 0

    def _serve(self) -> None:
        """Nothing: the senders connect to the readers."""

    def properties(self) -> Mapping[str, str]:
        self._readers += 1
        suffix = f"reader-{self._readers}"
        for number, sender in enumerate(self._senders):
            path = self._folder / f"{number}.{suffix}"
            sender.connect(zmq.DEALER, path, self._client, self._server[0])
        return {**self._at("bind", suffix), _PATTERN: "dealer-router"}

    def acknowledged(self) -> Mapping[int, int]:
        """Offsets before which messages are not kept any more, by partition."""
        found = {}
        for number, sender in enumerate(self._senders):
            assert isinstance(sender, _Dealer)
            found[number] = sender.acknowledged()
        return found

    def recreate(self) -> None:
        """Begin other streams over the same connections."""
        for sender in self._senders:
            sender.recreate()


def _hex(key: bytes) -> str:
    """A key in hexadecimal: Z85 may look like a reference or a URL."""
    return z85.decode(key).hex()
