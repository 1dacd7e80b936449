"""One partition as it is written with PUB or PUSH: what is sent is not kept."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Final

import zmq

from streamfactory.arrowlog.messages import message_schema, stored_messages
from streamfactory.backends.zeromq.options import DEALER_ROUTER, PUB_SUB, PUSH_PULL
from streamfactory.backends.zeromq.plain import messages_of
from streamfactory.backends.zeromq.protocol import Header, Kind
from streamfactory.backends.zeromq.transport import LONGEST_BATCH, Wire
from streamfactory.spi import (
    ClosedError,
    MisuseError,
    SchemaMismatch,
    StreamTimeout,
    ipc,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from streamfactory.backends.zeromq.endpoints import Endpoint
    from streamfactory.backends.zeromq.options import Settings
    from streamfactory.backends.zeromq.transport import Place
    from streamfactory.spi import Outgoing, StreamConfig
    from streamfactory.spi.waking import Wake

_KINDS: Final = {PUB_SUB: zmq.XPUB, PUSH_PULL: zmq.PUSH, DEALER_ROUTER: zmq.DEALER}
_LONGEST_POLL: Final = 0.25
"""Seconds after which timers are looked at."""
_EPOCH: Final = 32
"""Bits of a row's number within its epoch."""

Frames = list[bytes | memoryview]


class OutLane:
    """The sender of one partition. Thread-safe.

    Args:
        number: Of the partition.
        place: Makes, or finds, the context of all partitions.
        endpoints: Where its socket is.
        config: For options of writing.
        settings: The other options.
        stream: What the numbers of rows count: 16 bytes; None for a new one.
    """

    def __init__(
        self,
        number: int,
        place: Callable[[], Place],
        endpoints: tuple[Endpoint, ...],
        config: StreamConfig,
        settings: Settings,
        stream: bytes | None = None,
    ) -> None:
        self.number = number
        self._place = place
        self._endpoints = endpoints
        self._config = config
        self._settings = settings
        self._is_named = stream is not None
        self._stream = stream or os.urandom(16)
        self._session = os.urandom(16)
        self._stall = config["stall.timeout.millis"] / 1000
        self._linger = config["linger.millis"] / 1000
        self._lock = threading.RLock()
        self._wire: Wire | None = None
        self._schema: pa.Schema | None = None
        self._schema_text = b""
        self._row_size = 0.0
        self._next = 0
        self._cursor = 0
        self._sent = 0
        """Behind the last row that was sent."""
        self._subscribers = 0
        self._has_begun = False
        self.is_finished = False

    @property
    def name(self) -> str:
        """Its endpoints, for messages."""
        return ", ".join(map(str, self._endpoints))

    def open(self) -> None:
        """Bind or connect.

        Raises:
            ConnectionFailed, NotAuthorized: See `Wire`.
        """
        with self._lock:
            if self._wire is None:
                options = self._options()
                kind = _KINDS[self._settings.pattern]
                self._wire = Wire(self._place(), kind, self._endpoints, options)

    def begin(self, epoch: int) -> None:
        """Number the rows of an epoch.

        A named sender numbers them by epoch, so that a repetition has the same numbers:
        rows that were sent, or received, before are not sent again.

        Raises:
            MisuseError: misuse; the epoch is too large for a number.
        """
        with self._lock:
            if not self._is_named:
                return
            if epoch >= 1 << (63 - _EPOCH):
                msg = f"epoch {epoch} is too large to number rows by"
                raise MisuseError(msg, remedy="leave the writer id out")
            self._cursor = epoch << _EPOCH
            self._next = max(self._next, self._cursor)

    def send(self, outgoing: Outgoing, wake: Wake) -> None:
        """Send rows; waits while the other side accepts none.

        Raises:
            StreamTimeout: transient; no reader came, or none accepted anything.
            ClosedError: misuse; woken.
            StreamError: As `Wire.check`.
        """
        with self._lock:
            if self._settings.is_plain:
                self._send_plain(outgoing, wake)
                return
            rows = outgoing.rows
            if self._settings.is_raw:
                rows = stored_messages(outgoing)
            self._know(message_schema() if self._settings.is_raw else rows.schema)
            if self._cursor < self._next:
                skip = min(rows.num_rows, self._next - self._cursor)
                self._cursor += skip
                rows = rows.slice(skip)
            for part, body in self._bodies(rows):
                first, self._next = self._next, self._next + part
                self._cursor = self._next
                self._put(Kind.ROWS, first, self._next, body, wake)

    def flush(self, wake: Wake) -> None:
        """Return when what was written is as safe as the pattern makes it.

        PUB and PUSH have no answer: the messages are queued by ZeroMQ, and closing
        waits for them.
        """

    def break_off(self) -> None:
        """Let the readers fail: rows cannot be taken back.

        What is written afterwards is another stream: its numbers begin again.
        """
        with self._lock:
            if self._wire is None or not self._has_begun:
                return
            if not self._settings.is_plain:
                self._end(Kind.BROKEN, time.monotonic() + 1.0)
            self._renew()

    def finish(self, schema: pa.Schema, deadline: float) -> None:
        """End the stream well; plain messages have no end.

        Raises:
            StreamTimeout: transient; the other side did not accept it in time.
        """
        with self._lock:
            self.is_finished = True
            if self._settings.is_plain:
                return
            if self._schema is None:
                self._know(message_schema() if self._settings.is_raw else schema)
            self._end(Kind.END, deadline)

    def close(self) -> None:
        """Close the socket; the context then sends what is queued."""
        with self._lock:
            if self._wire is not None:
                self._wire.close(self._linger)

    # --- messages -----------------------------------------------------------------

    def _know(self, schema: pa.Schema) -> None:
        if self._schema is None:
            self._schema = schema.remove_metadata()
            self._schema_text = self._schema.serialize().to_pybytes()
        elif not schema.equals(self._schema):
            msg = f"the stream has begun with {_names(self._schema)}, not with "
            raise SchemaMismatch(msg + _names(schema))

    def _bodies(self, rows: pa.RecordBatch) -> Iterator[tuple[int, memoryview]]:
        """Rows as messages of no more than `LONGEST_BATCH`, unless of one row."""
        count = rows.num_rows
        at = 0
        while at < count:
            some = count - at
            if some * self._row_size > LONGEST_BATCH:
                some = max(1, int(LONGEST_BATCH / self._row_size))
            body = rows.slice(at, some).serialize()
            self._row_size = body.size / some
            if body.size > LONGEST_BATCH and some > 1:
                continue  # now that its rows are known to be long
            at += some
            yield some, memoryview(body)

    def _frames(self, kind: Kind, first: int, behind: int, body: memoryview) -> Frames:
        after = min(self._sent, first)
        header = Header(
            kind, self.number, self._stream, after, first, behind, self._session
        ).pack()
        frames: Frames = [header + self._schema_text if len(body) else header]
        if len(body):
            frames.append(body)
        return [*self._prefix(), *frames]

    def _prefix(self) -> Frames:
        if self._settings.pattern != PUB_SUB:
            return []
        prefix = self._config.get("prefix", self._config.topic)
        return [str(prefix).encode()]

    def _put(
        self, kind: Kind, first: int, behind: int, body: memoryview, wake: Wake | None
    ) -> None:
        """Send one message now."""
        self._gather(wake)
        self._pass(self._frames(kind, first, behind, body), wake)
        self._sent = behind

    def _end(self, kind: Kind, deadline: float) -> None:
        """Send an end."""
        self._gather(None)
        self._pass(self._frames(kind, self._next, self._next, _NOTHING), None, deadline)

    def _renew(self) -> None:
        self._stream, self._session = os.urandom(16), os.urandom(16)
        self._is_named = False
        self._next = self._cursor = self._sent = 0

    def _send_plain(self, outgoing: Outgoing, wake: Wake) -> None:
        self._gather(wake)
        if self._settings.is_raw:
            with_prefix = "prefix" in self._config and outgoing.key is None
            for parts in messages_of(outgoing):
                begin = self._prefix() if with_prefix else []
                self._pass([*begin, *parts], wake)
            return
        self._know(outgoing.rows.schema)
        for _, body in self._bodies(outgoing.rows):
            whole = b"".join((self._schema_text, body, ipc.END))
            self._pass([*self._prefix(), whole], wake)

    # --- the socket ---------------------------------------------------------------

    def _options(self) -> dict[int, int | bytes]:
        if self._settings.pattern == PUB_SUB:
            block = self._config["when.full"] == "block"
            return {zmq.XPUB_VERBOSER: 1, zmq.XPUB_NODROP: int(block)}
        # Without a connection nothing is queued: it would end with this process.
        return {zmq.IMMEDIATE: 1}

    def _opened(self) -> Wire:
        if self._wire is None:
            msg = "the stream is closed"
            raise ClosedError(msg)
        return self._wire

    def _pass(
        self, frames: Frames, wake: Wake | None, deadline: float | None = None
    ) -> None:
        """Hand a message to ZeroMQ; waits while the high-water mark is reached."""
        wire = self._opened()
        if self._settings.pattern == PUB_SUB:
            self._count_subscribers(wire)
        until = deadline or time.monotonic() + self._stall
        while not sent(wire.socket, frames):
            if wake is not None and wake.is_set:
                msg = "the writer was closed while it waited for readers"
                raise ClosedError(msg)
            if time.monotonic() > until:
                msg = f"{self.name}: readers accept no more messages"
                remedy = "read faster, or raise stall.timeout.millis or buffer.bytes"
                raise StreamTimeout(msg, remedy=remedy)
            # A publisher whose subscribers are full is ready to write all the same.
            is_publisher = self._settings.pattern == PUB_SUB
            pause = 0.002 if is_publisher else _LONGEST_POLL
            wire.wait(zmq.POLLIN if is_publisher else zmq.POLLOUT, pause, wake)
            if is_publisher:
                self._count_subscribers(wire)
        self._has_begun = True

    def _gather(self, wake: Wake | None) -> None:
        """Wait for the readers, before the first message."""
        if self._has_begun:
            return
        wire = self._opened()
        until = time.monotonic() + self._settings.timeout
        while not self._is_ready(wire):
            if wake is not None and wake.is_set:
                msg = "the writer was closed while it waited for readers"
                raise ClosedError(msg)
            if time.monotonic() > until:
                msg = f"{self.name}: no reader has come in time"
                if self._settings.pattern == PUB_SUB:
                    wanted = self._config["readers"]
                    msg = f"{self.name}: {self._subscribers} of {wanted} readers have "
                    msg += "subscribed in time"
                remedy = "start them, or raise connection.timeout.millis"
                raise StreamTimeout(msg, remedy=remedy)

    def _is_ready(self, wire: Wire) -> bool:
        """Whether the first message may be sent; waits a little."""
        if self._settings.pattern != PUB_SUB:
            return wire.wait(zmq.POLLOUT, _LONGEST_POLL)
        self._count_subscribers(wire)
        if self._subscribers >= self._config["readers"]:
            return True
        wire.wait(zmq.POLLIN, _LONGEST_POLL)
        return False

    def _count_subscribers(self, wire: Wire) -> None:
        """Read the subscriptions that came; those that exclude the prefix are left."""
        prefix = b"" if self._settings.is_plain else bytes(self._prefix()[0])
        while True:
            try:
                text = wire.socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                return
            if prefix.startswith(text[1:]) or self._settings.is_plain:
                self._subscribers += 1 if text[:1] == b"\1" else -1


_NOTHING: Final = memoryview(b"")
_COPIED: Final = 64 * 1024
"""Bytes below which a frame is copied: that costs less than to keep track of it."""


def sent(socket: zmq.Socket[bytes], frames: Frames) -> bool:
    """Send a message, all frames of it or none; whether it was accepted."""
    *begin, last = frames
    try:
        for number, frame in enumerate(begin):
            # Once the first is accepted the others are.
            flags = zmq.SNDMORE if number else zmq.SNDMORE | zmq.NOBLOCK
            socket.send(frame, flags)
        flags = zmq.Flag(0) if begin else zmq.NOBLOCK
        socket.send(last, flags, copy=len(last) < _COPIED)
    except zmq.Again:
        return False
    return True


def _names(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema) or "no columns"
