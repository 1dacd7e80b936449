"""A non-blocking connection: read, write, verify the peer, abort.

Operations that would block raise BlockingIOError.
"""

from __future__ import annotations

import fcntl
import logging
import os
import select
import socket
import ssl
import struct
import termios
import time
from contextlib import suppress
from typing import Final

from streamfactory.arrowipc import MARKER
from streamfactory.backends.socket.waiting import READABLE, WRITABLE, poll_busily
from streamfactory.spi import (
    ConnectionFailed,
    NotAuthorized,
    StreamError,
)

log = logging.getLogger(__name__)

_MOST_VIEWS: Final = 512
"""Buffers per system call; the limit of systems is 1024."""
_BRIEFLY: Final = 1
"""Milliseconds in which a sender that writes without a pause sends more."""
_END_OF_TLS: Final = 0.2
"""Seconds in which a sender ends TLS after the end of its stream."""


class Connection:
    """One connection, possibly not established yet. One thread at a time."""

    def __init__(self, sock: socket.socket, name: str, *, connected: bool) -> None:
        self.name = name
        self.waits_for = READABLE if connected else WRITABLE
        self.is_open = False
        """Whether it is connected and the peer is verified."""
        self.since = time.monotonic()
        self._socket = sock
        self._connected = connected
        self._tls: ssl.SSLContext | None = None
        self._hostname: str | None = None
        self._poll: select.poll | None = None

    def use_tls(self, context: ssl.SSLContext, hostname: str | None) -> None:
        """Enable TLS. ``hostname``: that of the server, None on the server itself."""
        self._tls, self._hostname = context, hostname

    @property
    def is_tls(self) -> bool:
        """Whether TLS may buffer bytes that poll does not report."""
        return self._tls is not None

    def fileno(self) -> int:
        return self._socket.fileno()

    def advance(self) -> None:
        """Continue connecting and the handshake.

        Raises:
            BlockingIOError: Not finished.
            NotAuthorized: permanent; the peer cannot be verified.
            ConnectionFailed: transient.
        """
        try:
            if not self._connected:
                self._finish_connecting()
            if self._tls is not None:
                self._do_handshake(self._tls)
            elif self._socket.family == socket.AF_UNIX:
                self._check_user()
        except BlockingIOError:
            raise
        except ssl.SSLError as error:
            msg = f"{self.name}: the TLS handshake failed: {error.reason or error}"
            raise NotAuthorized(msg) from error
        except OSError as error:
            if isinstance(error, NotAuthorized):
                raise
            msg = f"{self.name}: {error.strerror or error}"
            raise ConnectionFailed(msg) from error
        self.is_open, self.waits_for = True, READABLE

    def receive(self, views: list[memoryview]) -> int:
        """Fill views with received bytes; 0 at the end of the stream.

        Raises:
            BlockingIOError: No bytes are available.
            OSError: The connection failed.
        """
        if not isinstance(self._socket, ssl.SSLSocket):
            return int(self._socket.recvmsg_into(views)[0])
        try:
            return self._socket.recv_into(views[0])
        except ssl.SSLError as error:
            self._translate(error)
            raise

    def wait_briefly(self) -> bool:
        """Wait for a millisecond; whether bytes are available. Not for TLS."""
        return bool(self._polled().poll(_BRIEFLY))

    def watch(self) -> bool:
        """Poll busily for a short time; whether bytes are available. Not for TLS."""
        return bool(poll_busily(self._polled()))

    def _polled(self) -> select.poll:
        if self._poll is None:
            self._poll = select.poll()
            self._poll.register(self._socket, READABLE)
        return self._poll

    def send(self, views: list[memoryview]) -> int:
        """Send as many bytes as the socket accepts.

        Raises:
            BlockingIOError: The send buffer is full.
            OSError: The connection failed.
        """
        if not isinstance(self._socket, ssl.SSLSocket):
            return self._socket.sendmsg(views[:_MOST_VIEWS])
        try:
            return self._socket.send(views[0])
        except ssl.SSLError as error:
            self._translate(error)
            raise

    def peer_has_closed(self) -> bool:
        """Whether the peer has closed its side. Consumes nothing, never blocks.

        Raises:
            ConnectionFailed: transient; the peer sent data.
            NotAuthorized: permanent; the peer rejects this side.
            OSError: The connection failed.
        """
        try:
            if isinstance(self._socket, ssl.SSLSocket):
                received = self._peek_tls(self._socket)
            else:
                flags = socket.MSG_PEEK | socket.MSG_DONTWAIT
                received = self._socket.recv(1, flags)
        except BlockingIOError:
            return False
        if received:
            msg = f"{self.name}: the reader sent bytes, which readers never do"
            raise ConnectionFailed(msg)
        return True

    def unacknowledged(self) -> int:
        """Sent bytes that the peer's system has not acknowledged.

        Raises:
            OSError: The peer has reset the connection.
        """
        code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        found = fcntl.ioctl(self._socket.fileno(), termios.TIOCOUTQ, bytes(4))
        return int(struct.unpack("i", found)[0])

    def await_close(self) -> None:
        """Receive the end of TLS, so that closing does not reset the connection."""
        deadline = time.monotonic() + _END_OF_TLS
        while (left := deadline - time.monotonic()) > 0:
            try:
                if not self._socket.recv(1):
                    return
            except (ssl.SSLWantReadError, BlockingIOError):
                self._polled().poll(left * 1000)
            except OSError:
                return

    def end_sending(self) -> None:
        """Shut down the sending side.

        Raises:
            NotAuthorized: permanent; the peer has rejected this side meanwhile.
            ConnectionFailed: transient; the peer closed or rejected concurrently.
        """
        if not isinstance(self._socket, ssl.SSLSocket):
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)
            return
        try:
            if self.peer_has_closed():
                return
            self._socket.unwrap()
        except StreamError:
            raise
        except OSError:
            return  # the peer's close_notify is not awaited here
        # OpenSSL consumed the last record and cannot distinguish a rejection from a
        # close.
        msg = (
            f"{self.name}: the reader closed or rejected the connection as the stream "
            "ended"
        )
        raise ConnectionFailed(
            msg, remedy="check whether the reader has all rows, or send them again"
        )

    def break_off(self, *, torn: bool) -> None:
        """Close so that the peer detects a failure.

        Other programs take a bare end of bytes for the end of the stream. An incomplete
        message prefix shows that it is not.

        Args:
            torn: Whether a message is partly sent already.
        """
        try:
            sent = torn or (self.is_open and self.send([memoryview(MARKER)]) > 0)
        except OSError:
            sent = False
        if not sent:
            with suppress(OSError):
                linger = struct.pack("ii", 1, 0)
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.close()

    def close(self) -> None:
        """Close. May be called twice."""
        self.is_open = False
        self._socket.close()

    def _finish_connecting(self) -> None:
        code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        try:
            self._socket.getpeername()
        except OSError as error:
            raise BlockingIOError from error
        self._connected = True

    def _do_handshake(self, context: ssl.SSLContext) -> None:
        if not isinstance(self._socket, ssl.SSLSocket):
            self._socket = context.wrap_socket(
                self._socket,
                server_side=self._hostname is None,
                server_hostname=self._hostname,
                do_handshake_on_connect=False,
            )
        try:
            self._socket.do_handshake()
        except ssl.SSLError as error:
            self._translate(error)
            raise

    def _translate(self, error: ssl.SSLError) -> None:
        """Raise BlockingIOError if TLS must wait, NotAuthorized if the peer rejects."""
        if isinstance(error, ssl.SSLWantReadError):
            self.waits_for = READABLE
            raise BlockingIOError from error
        if isinstance(error, ssl.SSLWantWriteError):
            self.waits_for = WRITABLE
            raise BlockingIOError from error
        if "_ALERT_" in (error.reason or "") and self.is_open:
            # With TLS 1.3 a client receives a rejection only after its handshake.
            msg = f"{self.name}: the peer rejected the TLS connection: {error.reason}"
            raise NotAuthorized(msg) from error

    def _peek_tls(self, sock: ssl.SSLSocket) -> bytes:
        try:
            return sock.recv(1)
        except ssl.SSLError as error:
            self._translate(error)
            raise

    def _check_user(self) -> None:
        """Reject processes of other users, besides the mode of the socket file."""
        option = getattr(socket, "SO_PEERCRED", None)
        if option is None:
            msg = f"{self.name}: this system does not report the user of the peer"
            raise NotAuthorized(msg, remedy="use TCP on the loopback address")
        form = "3i"
        credentials = self._socket.getsockopt(
            socket.SOL_SOCKET, option, struct.calcsize(form)
        )
        user = struct.unpack(form, credentials)[1]
        if user != os.geteuid():
            msg = f"{self.name}: the peer runs as user {user}, not {os.geteuid()}"
            raise NotAuthorized(msg, remedy="run both sides as the same user")
