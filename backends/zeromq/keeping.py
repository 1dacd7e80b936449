"""Writing of one partition with DEALER: messages are kept until they are stored.

The reader replies where to start (WELCOME) and up to where rows are stored (STORED).
Rows that were lost with a connection or a reader are sent again.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import zmq

from streamfactory.backends.zeromq.protocol import Header, Kind, read_header
from streamfactory.backends.zeromq.sending import SendingWriter, sent
from streamfactory.live.writing import check_woken
from streamfactory.spi import (
    CorruptData,
    StreamTimeout,
    WriterFenced,
)

if TYPE_CHECKING:
    from streamfactory.backends.zeromq.transport import MonitoredSocket
    from streamfactory.spi.waking import Wake

_LONGEST_POLL: Final = 0.25
_PATIENCE: Final = 1.0
"""Seconds without a reply after which HELLO is sent again."""
_NOTHING: Final = memoryview(b"")


@dataclass(slots=True)
class _Kept:
    """A message that is not acknowledged as stored."""

    kind: Kind
    first: int
    next: int
    body: memoryview


class AcknowledgedWriter(SendingWriter):
    """Writes one partition and keeps messages until acknowledged. Thread-safe."""

    def _begin_stream(self, stream: bytes | None) -> None:
        super()._begin_stream(stream)
        self._has_begun = False
        self._kept: deque[_Kept] = deque()
        """Sent; the oldest first."""
        self._waiting: deque[_Kept] = deque()
        """To be sent."""
        self._kept_size = 0
        self._released = 0
        """Rows before this number are stored and no longer kept."""
        self._stored = 0
        self._reader = b""
        """Session of the reader that sent the last WELCOME."""
        self._hello: int | None = None
        """Rows sent before the last unanswered HELLO."""
        self._asked_at = 0.0
        self._moved_at = time.monotonic()
        self._handshakes = 0

    def flush(self, wake: Wake) -> None:
        """Block until the reader has stored every row.

        Raises:
            StreamTimeout: transient; the reader did not acknowledge rows in time.
            WriterFenced: permanent; a later instance of this sender has connected.
            ClosedError: misuse; woken.
        """
        with self._lock:
            if not self._has_begun:
                return
            self._moved_at = time.monotonic()
            while self._waiting or self._kept:
                self._attend(wake)

    def confirm(self, deadline: float) -> int:
        """Close the socket; every commit has waited until its rows were stored."""
        self.close()
        return 0

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
        socket = self._opened()
        self._waiting.append(_Kept(kind, self._next, self._next, _NOTHING))
        disconnects = socket.disconnects
        asked = False
        while time.monotonic() < deadline:
            self._pump(socket)
            if not self._waiting and not asked:
                self._ask(socket)
                asked = True
            answered = asked and self._hello is None and not self._waiting
            if answered or socket.disconnects > disconnects:
                return
            socket.wait(zmq.POLLIN, 0.02)
            self._listen(socket)
        if kind is Kind.END:
            msg = f"{self.name}: the reader has not received the end of the stream"
            raise StreamTimeout(msg, remedy="increase connection.timeout.millis")

    # --- replies of the reader ----------------------------------------------------

    def _is_ready(self, socket: MonitoredSocket) -> bool:
        """Whether a reader has replied with its start."""
        if self._reader:
            return True
        self._introduce(socket)
        socket.wait(zmq.POLLIN, 0.05)
        self._listen(socket)
        return bool(self._reader)

    def _attend(self, wake: Wake | None) -> None:
        """Send messages or process replies; waits briefly if neither is possible.

        Raises:
            StreamTimeout, WriterFenced, ClosedError: As `flush`.
        """
        socket = self._opened()
        check_woken(wake)
        if time.monotonic() - self._moved_at > self._stall:
            oldest = [*self._kept, *self._waiting][0].first
            msg = f"{self.name}: the reader has not acknowledged rows from {oldest} on"
            remedy = (
                "only copy, groups, queries and spools acknowledge stored rows; set "
            )
            remedy += "acknowledge=fetched for other readers"
            raise StreamTimeout(msg, remedy=remedy)
        self._introduce(socket)
        if self._pump(socket):
            return  # the awaited acknowledgement may have been received
        events = zmq.POLLIN | (zmq.POLLOUT if self._waiting and self._reader else 0)
        socket.wait(events, _LONGEST_POLL, wake)
        self._listen(socket)

    def _introduce(self, socket: MonitoredSocket) -> None:
        """Send HELLO after a new connection, and after a period without replies."""
        socket.check()
        is_new = socket.handshakes != self._handshakes
        if is_new or time.monotonic() - self._asked_at > _PATIENCE:
            self._handshakes = socket.handshakes
            self._ask(socket)

    def _ask(self, socket: MonitoredSocket) -> None:
        header = Header(
            Kind.HELLO,
            self.number,
            self._stream,
            self._released,
            max(self._sent, self._released),
            max(self._sent, self._released),
            self._session,
        )
        if sent(socket.socket, [header.pack() + self._schema_text]):
            self._hello = self._sent
            self._asked_at = time.monotonic()

    def _pump(self, socket: MonitoredSocket) -> bool:
        """Send queued messages as far as possible; whether there was progress."""
        has_moved = self._listen(socket)
        while self._waiting and self._reader:
            piece = self._waiting[0]
            frames = self._frames(piece.kind, piece.first, piece.next, piece.body)
            if not sent(socket.socket, frames):
                break
            self._sent = piece.next
            self._kept.append(self._waiting.popleft())
            has_moved = True
        return has_moved

    def _listen(self, socket: MonitoredSocket) -> bool:
        """Process received replies; whether there were any.

        Raises:
            WriterFenced: permanent.
            CorruptData: data_loss; the peer is not a streamfactory reader.
        """
        has_heard = False
        while True:
            try:
                frames = socket.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return has_heard
            has_heard = True
            header = read_header(frames[0])
            if header.stream != self._stream:
                continue  # a reply to an aborted stream
            if header.kind is Kind.WELCOME:
                self._welcomed(header)
            elif header.kind is Kind.STORED:
                self._release(header.next)
            elif header.kind is Kind.HELLO:
                self._ask(socket)
            elif header.kind is Kind.FENCED:
                msg = (
                    f"{self.name}: the writer is fenced: another sender has replaced it"
                )
                remedy = "run only one sender per partition"
                raise WriterFenced(msg, remedy=remedy)
            else:
                msg = (
                    f"the reply of a reader has the unexpected kind {header.kind.name}"
                )
                raise CorruptData(msg)

    def _welcomed(self, header: Header) -> None:
        asked, self._hello = self._hello, None
        is_same = header.session == self._reader
        self._reader = header.session
        if is_same and asked is not None and header.next >= asked:
            return  # all rows sent before the HELLO were received
        self._rewind(header.next)

    def _rewind(self, number: int) -> None:
        """Send everything again from a number on."""
        while self._kept and (
            self._kept[-1].next > number or self._kept[-1].kind is not Kind.ROWS
        ):
            self._waiting.appendleft(self._kept.pop())
        # Rows that the reader has stored, such as of a repeated epoch, are not sent.
        while self._waiting and self._waiting[0].next <= number:
            if self._waiting[0].kind is not Kind.ROWS:
                break
            self._kept.append(self._waiting.popleft())
        self._sent = max(number, self._released)

    def _release(self, number: int) -> None:
        """Drop messages that are stored."""
        self._moved_at = time.monotonic()
        self._stored = max(self._stored, number)
        for queue in (self._kept, self._waiting):
            while queue and queue[0].next <= number and queue[0].kind is Kind.ROWS:
                piece = queue.popleft()
                self._kept_size -= len(piece.body)
                self._released = max(self._released, piece.next)
