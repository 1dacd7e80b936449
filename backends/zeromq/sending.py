"""Writing of one partition with PUB or PUSH: sent messages are not kept."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Final

import zmq

from streamfactory import arrowipc as ipc
from streamfactory.arrowlog.messages import message_schema, stored_messages
from streamfactory.backends.zeromq.options import DEALER_ROUTER, PUB_SUB, PUSH_PULL
from streamfactory.backends.zeromq.plain import messages_of
from streamfactory.backends.zeromq.protocol import Header, Kind
from streamfactory.backends.zeromq.transport import MonitoredSocket
from streamfactory.live.options import seconds
from streamfactory.live.schemas import check_rows
from streamfactory.live.writing import PartitionWriter, check_woken
from streamfactory.spi import (
    ClosedError,
    MisuseError,
    StreamTimeout,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from streamfactory.backends.zeromq.endpoints import Endpoint
    from streamfactory.backends.zeromq.transport import SocketContext
    from streamfactory.spi import Outgoing
    from streamfactory.spi.waking import Wake

_KINDS: Final = {PUB_SUB: zmq.XPUB, PUSH_PULL: zmq.PUSH, DEALER_ROUTER: zmq.DEALER}
_LONGEST_POLL: Final = 0.25
"""Maximum seconds of one poll, after which timeouts are checked."""
_EPOCH: Final = 32
"""Bits of a row's number within its epoch."""

Frames = list[bytes | memoryview]


class SendingWriter(PartitionWriter):
    """Writes one partition. Thread-safe.

    Args:
        number: Number of the partition.
        place: The socket context, shared by all partitions.
        endpoints: The endpoints of the partition.
        stream: Stream id of 16 bytes; None for a new one.
    """

    _next: int
    """Number of the next row."""

    def __init__(
        self,
        number: int,
        place: SocketContext,
        endpoints: tuple[Endpoint, ...],
        stream: bytes | None = None,
    ) -> None:
        self.number = number
        self._place = place
        self._endpoints = endpoints
        self._config = config = place.config
        self._settings = place.settings
        self._lock = threading.RLock()
        self._socket: MonitoredSocket | None = None
        self._schema: pa.Schema | None = None
        self._schema_text = b""
        self._row_size = 0.0
        self._subscribers = 0
        self._stall = seconds(config, "stall.timeout.millis")
        self._linger = seconds(config, "linger.millis")
        self._has_begun = False
        self._left_early = 0
        """Readers that had disconnected when the stream ended."""
        self._begin_stream(stream)

    @property
    def name(self) -> str:
        """Its endpoints, for messages."""
        return ", ".join(map(str, self._endpoints))

    def open(self) -> None:
        with self._lock:
            if self._socket is None:
                kind, options = _KINDS[self._settings.pattern], self._options()
                self._socket = MonitoredSocket(
                    self._place, kind, self._endpoints, options
                )

    def begin(self, epoch: int) -> None:
        """Assign the sequence numbers of an epoch.

        A named sender derives them from the epoch, so a repeated epoch has the same
        numbers, and rows that were sent or received before are not sent again.

        Raises:
            MisuseError: misuse; the epoch is too large.
        """
        with self._lock:
            if not self._is_named:
                return
            if epoch >= 1 << (63 - _EPOCH):
                msg = f"epoch {epoch} is too large for sequence numbers"
                raise MisuseError(msg, remedy="remove sender.id")
            self._cursor = epoch << _EPOCH
            self._next = max(self._next, self._cursor)

    def send(self, outgoing: Outgoing, wake: Wake) -> None:
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
        """PUB and PUSH have no acknowledgements: closing waits for queued messages."""

    def break_off(self) -> None:
        """Abort the stream; the numbers of the next one start again."""
        with self._lock:
            if self._socket is None or not self._has_begun:
                return
            if not self._settings.is_plain:
                self._end(Kind.BROKEN, time.monotonic() + 1.0)
            self._begin_stream(None)

    def finish(self, schema: pa.Schema, deadline: float) -> None:
        """Finish the stream; plain messages have no end marker."""
        with self._lock:
            if self.is_finished:
                return
            self.is_finished = True
            if self._socket is not None:
                self._socket.check()
                self._left_early = self._socket.lost
            if self._settings.is_plain:
                return
            if self._schema is None:
                self._know(message_schema() if self._settings.is_raw else schema)
            self._end(Kind.END, deadline)
            if self._drops:
                self._repeat_end(deadline)

    def _repeat_end(self, deadline: float) -> None:
        """Send the end until its readers have left, for `linger.millis` at most.

        It is dropped for a slow reader as rows are, and only the end shows which rows
        were dropped last.
        """
        socket, until = self._opened(), min(deadline, time.monotonic() + self._linger)
        while self._subscribers > 0 and time.monotonic() < until:
            socket.wait(zmq.POLLIN, _LONGEST_POLL)
            self._end(Kind.END, deadline)

    def confirm(self, deadline: float) -> int:
        """Close the socket; the context then sends what is queued.

        Nothing shows whether a reader received the end. One that disconnected before
        it may lack rows.
        """
        self.close()
        return self._left_early

    def close(self) -> None:
        """Close the socket; the context then sends what is queued."""
        with self._lock:
            if self._socket is not None:
                self._socket.close(self._linger)

    # --- messages -----------------------------------------------------------------

    def _know(self, schema: pa.Schema) -> None:
        if self._schema is None:
            self._schema = schema.remove_metadata()
            self._schema_text = self._schema.serialize().to_pybytes()
        else:
            check_rows(schema, self._schema)

    def _bodies(self, rows: pa.RecordBatch) -> Iterator[tuple[int, memoryview]]:
        """Encode rows as messages of at most one frame, unless of one row."""
        count, longest = rows.num_rows, self._settings.frame
        at = 0
        while at < count:
            some = count - at
            if some * self._row_size > longest:
                some = max(1, int(longest / self._row_size))
            body = rows.slice(at, some).serialize()
            self._row_size = body.size / some
            if body.size > longest and some > 1:
                continue  # retry with the measured size of a row
            at += some
            yield some, memoryview(body)

    def _frames(self, kind: Kind, first: int, behind: int, body: memoryview) -> Frames:
        after = min(self._sent, first)
        header = Header(
            kind, self.number, self._stream, after, first, behind, self._session
        ).pack()
        frames: Frames = [header + self._schema_text if len(body) else header]
        size = self._settings.frame
        frames += [body[at : at + size] for at in range(0, len(body), size)]
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

    def _begin_stream(self, stream: bytes | None) -> None:
        self._is_named = stream is not None
        self._stream, self._session = stream or os.urandom(16), os.urandom(16)
        self._next = self._cursor = 0
        self._sent = 0
        """Number after the last sent row."""

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

    @property
    def _drops(self) -> bool:
        """Whether messages are dropped for subscribers that are slow."""
        publishes = self._settings.pattern == PUB_SUB
        return publishes and self._config["when.full"] == "drop"

    def _options(self) -> dict[int, int | bytes]:
        if self._settings.pattern == PUB_SUB:
            return {zmq.XPUB_VERBOSER: 1, zmq.XPUB_NODROP: int(not self._drops)}
        # Queue only for existing connections: other messages would be lost at exit.
        return {zmq.IMMEDIATE: 1}

    def _opened(self) -> MonitoredSocket:
        if self._socket is None:
            msg = "the stream is closed"
            raise ClosedError(msg)
        return self._socket

    def _pass(
        self, frames: Frames, wake: Wake | None, deadline: float | None = None
    ) -> None:
        """Send a message; blocks while the high-water mark is reached."""
        socket = self._opened()
        if self._settings.pattern == PUB_SUB:
            self._count_subscribers(socket)
        until = deadline or time.monotonic() + self._stall
        while not sent(socket.socket, frames):
            check_woken(wake)
            if time.monotonic() > until:
                msg = f"{self.name}: readers do not accept messages"
                remedy = "read faster, or increase stall.timeout.millis or buffer.bytes"
                raise StreamTimeout(msg, remedy=remedy)
            # XPUB polls as writable even if its subscribers are at their high-water
            # mark.
            is_publisher = self._settings.pattern == PUB_SUB
            pause = 0.002 if is_publisher else _LONGEST_POLL
            socket.wait(zmq.POLLIN if is_publisher else zmq.POLLOUT, pause, wake)
            if is_publisher:
                self._count_subscribers(socket)
        self._has_begun = True

    def _gather(self, wake: Wake | None) -> None:
        """Wait for readers before the first message."""
        if self._has_begun:
            return
        socket = self._opened()
        until = time.monotonic() + self._settings.timeout
        while not self._is_ready(socket):
            check_woken(wake)
            if time.monotonic() > until:
                socket.check_handshakes()
                msg = f"{self.name}: no reader connected before the timeout"
                if self._settings.pattern == PUB_SUB:
                    wanted = self._config["readers"]
                    msg = f"{self.name}: {self._subscribers} of {wanted} readers "
                    msg += "subscribed before the timeout"
                remedy = "start the readers, or increase connection.timeout.millis"
                raise StreamTimeout(msg, remedy=remedy)

    def _is_ready(self, socket: MonitoredSocket) -> bool:
        """Whether the first message may be sent; waits a little."""
        if self._settings.pattern != PUB_SUB:
            return socket.wait(zmq.POLLOUT, _LONGEST_POLL)
        self._count_subscribers(socket)
        if self._subscribers >= self._config["readers"]:
            return True
        socket.wait(zmq.POLLIN, _LONGEST_POLL)
        return False

    def _count_subscribers(self, socket: MonitoredSocket) -> None:
        """Process subscriptions; ignores those that do not match the prefix."""
        prefix = b"" if self._settings.is_plain else bytes(self._prefix()[0])
        while True:
            try:
                text = socket.socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                return
            if prefix.startswith(text[1:]) or self._settings.is_plain:
                self._subscribers += 1 if text[:1] == b"\1" else -1


_NOTHING: Final = memoryview(b"")
_COPIED: Final = 64 * 1024
"""Bytes below which copying a frame is cheaper than tracking it."""


def sent(socket: zmq.Socket[bytes], frames: Frames) -> bool:
    """Send a message, all frames of it or none; whether it was accepted."""
    *begin, last = frames
    try:
        for number, frame in enumerate(begin):
            # ZeroMQ accepts all frames of a message once it accepts the first.
            flags = zmq.SNDMORE if number else zmq.SNDMORE | zmq.NOBLOCK
            socket.send(frame, flags)
        flags = zmq.Flag(0) if begin else zmq.NOBLOCK
        socket.send(last, flags, copy=len(last) < _COPIED)
    except zmq.Again:
        return False
    return True
