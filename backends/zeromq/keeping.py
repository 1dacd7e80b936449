"""One partition as it is written with DEALER: messages are kept until they are stored.

The reader answers where to begin (WELCOME), and up to where rows are stored (STORED).
Whatever was lost with a connection, or with a reader, is sent again.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import zmq

from streamfactory.backends.zeromq.protocol import Header, Kind, read_header
from streamfactory.backends.zeromq.sending import OutLane, sent
from streamfactory.spi import (
    ClosedError,
    CorruptData,
    StreamConfig,
    StreamTimeout,
    WriterFenced,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamfactory.backends.zeromq.endpoints import Endpoint
    from streamfactory.backends.zeromq.options import Settings
    from streamfactory.backends.zeromq.transport import Place, Wire
    from streamfactory.spi.waking import Wake

_LONGEST_POLL: Final = 0.25
_PATIENCE: Final = 1.0
"""Seconds without an answer after which the reader is asked where it stands."""
_NOTHING: Final = memoryview(b"")


@dataclass(slots=True)
class _Kept:
    """A message that is not known to be stored."""

    kind: Kind
    first: int
    next: int
    body: memoryview


class KeepingLane(OutLane):
    """The sender of one partition that is answered. Thread-safe."""

    def __init__(
        self,
        number: int,
        place: Callable[[], Place],
        endpoints: tuple[Endpoint, ...],
        config: StreamConfig,
        settings: Settings,
        stream: bytes | None = None,
    ) -> None:
        super().__init__(number, place, endpoints, config, settings, stream)
        self._begin_link()

    def _begin_link(self) -> None:
        self._kept: deque[_Kept] = deque()
        """Sent; the oldest first."""
        self._waiting: deque[_Kept] = deque()
        """To be sent."""
        self._kept_size = 0
        self._released = 0
        """Rows before it are stored, and kept no more."""
        self._stored = 0
        self._reader = b""
        """Session of the reader that gave the last welcome."""
        self._hello: int | None = None
        """What was sent before the question that is not answered yet."""
        self._asked_at = 0.0
        self._moved_at = time.monotonic()
        self._handshakes = 0

    def flush(self, wake: Wake) -> None:
        """Return when every row is stored by the reader.

        Raises:
            StreamTimeout: transient; the reader acknowledged nothing for long.
            WriterFenced: permanent; a later instance of this sender has come.
            ClosedError: misuse; woken.
        """
        with self._lock:
            if not self._has_begun:
                return
            self._moved_at = time.monotonic()
            while self._waiting or self._kept:
                self._attend(wake)

    # --- messages -----------------------------------------------------------------

    def _put(
        self, kind: Kind, first: int, behind: int, body: memoryview, wake: Wake | None
    ) -> None:
        self._gather(wake)
        limit = self._settings.buffer
        self._moved_at = time.monotonic()
        while self._kept_size and self._kept_size + len(body) > limit:
            self._attend(wake)
        self._waiting.append(_Kept(kind, first, behind, body))
        self._kept_size += len(body)
        self._has_begun = True
        self._pump(self._opened())

    def _end(self, kind: Kind, deadline: float) -> None:
        """Send an end, and return when the reader has received it."""
        self._gather(None)
        self._has_begun = True
        wire = self._opened()
        self._waiting.append(_Kept(kind, self._next, self._next, _NOTHING))
        disconnects = wire.disconnects
        asked = False
        while time.monotonic() < deadline:
            self._pump(wire)
            if not self._waiting and not asked:
                self._ask(wire)
                asked = True
            answered = asked and self._hello is None and not self._waiting
            if answered or wire.disconnects > disconnects:
                return
            wire.wait(zmq.POLLIN, 0.02)
            self._listen(wire)
        if kind is Kind.END:
            msg = f"{self.name}: the reader has not received the end of the stream"
            raise StreamTimeout(msg, remedy="raise connection.timeout.millis")

    def _renew(self) -> None:
        super()._renew()
        self._begin_link()
        self._has_begun = False

    # --- what the reader answers --------------------------------------------------

    def _is_ready(self, wire: Wire) -> bool:
        """Whether a reader has said where to begin."""
        if self._reader:
            return True
        self._introduce(wire)
        wire.wait(zmq.POLLIN, 0.05)
        self._listen(wire)
        return bool(self._reader)

    def _attend(self, wake: Wake | None) -> None:
        """Send, or read answers; wait a little where neither is possible.

        Raises:
            StreamTimeout, WriterFenced, ClosedError: As `flush`.
        """
        wire = self._opened()
        if wake is not None and wake.is_set:
            msg = "the writer was closed while rows were not stored"
            raise ClosedError(msg)
        if time.monotonic() - self._moved_at > self._stall:
            oldest = [*self._kept, *self._waiting][0].first
            msg = f"{self.name}: the reader acknowledges nothing from {oldest} on"
            remedy = "readers acknowledge what copy, a group, a query or a spool has "
            remedy += "stored; others need acknowledge=fetched"
            raise StreamTimeout(msg, remedy=remedy)
        self._introduce(wire)
        if self._pump(wire):
            return  # what the caller waits for may be there
        events = zmq.POLLIN | (zmq.POLLOUT if self._waiting and self._reader else 0)
        wire.wait(events, _LONGEST_POLL, wake)
        self._listen(wire)

    def _introduce(self, wire: Wire) -> None:
        """Say who sends, after a connection was made, and after a silence."""
        wire.check()
        is_new = wire.handshakes != self._handshakes
        if is_new or time.monotonic() - self._asked_at > _PATIENCE:
            self._handshakes = wire.handshakes
            self._ask(wire)

    def _ask(self, wire: Wire) -> None:
        header = Header(
            Kind.HELLO,
            self.number,
            self._stream,
            self._released,
            max(self._sent, self._released),
            max(self._sent, self._released),
            self._session,
        )
        if sent(wire.socket, [header.pack() + self._schema_text]):
            self._hello = self._sent
            self._asked_at = time.monotonic()

    def _pump(self, wire: Wire) -> bool:
        """Send what waits, as far as there is room; whether anything moved."""
        has_moved = self._listen(wire)
        while self._waiting and self._reader:
            piece = self._waiting[0]
            frames = self._frames(piece.kind, piece.first, piece.next, piece.body)
            if not sent(wire.socket, frames):
                break
            self._sent = piece.next
            self._kept.append(self._waiting.popleft())
            has_moved = True
        return has_moved

    def _listen(self, wire: Wire) -> bool:
        """Read the answers that came; whether there were any.

        Raises:
            WriterFenced: permanent.
            CorruptData: data_loss; the other side is no reader of streamfactory.
        """
        has_heard = False
        while True:
            try:
                frames = wire.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return has_heard
            has_heard = True
            header = read_header(frames[0])
            if header.stream != self._stream:
                continue  # to a stream that was broken off
            if header.kind is Kind.WELCOME:
                self._welcomed(header)
            elif header.kind is Kind.STORED:
                self._release(header.next)
            elif header.kind is Kind.HELLO:
                self._ask(wire)
            elif header.kind is Kind.FENCED:
                msg = f"{self.name}: another sender has taken the place of this one"
                remedy = "stop one of them, or give each partition one sender"
                raise WriterFenced(msg, remedy=remedy)
            else:
                msg = f"the answer of a reader has the kind {header.kind.name}"
                raise CorruptData(msg)

    def _welcomed(self, header: Header) -> None:
        asked, self._hello = self._hello, None
        is_same = header.session == self._reader
        self._reader = header.session
        if is_same and asked is not None and header.next >= asked:
            return  # all that was sent before the question has been received
        self._rewind(header.next)

    def _rewind(self, number: int) -> None:
        """Send everything again from a number on."""
        while self._kept and (
            self._kept[-1].next > number or self._kept[-1].kind is not Kind.ROWS
        ):
            self._waiting.appendleft(self._kept.pop())
        # What the reader has stored already, as of a repeated epoch, is not sent.
        while self._waiting and self._waiting[0].next <= number:
            if self._waiting[0].kind is not Kind.ROWS:
                break
            self._kept.append(self._waiting.popleft())
        self._sent = max(number, self._released)

    def _release(self, number: int) -> None:
        """Forget what is stored."""
        self._moved_at = time.monotonic()
        self._stored = max(self._stored, number)
        for queue in (self._kept, self._waiting):
            while queue and queue[0].next <= number and queue[0].kind is Kind.ROWS:
                piece = queue.popleft()
                self._kept_size -= len(piece.body)
                self._released = max(self._released, piece.next)
