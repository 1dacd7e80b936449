"""Non-blocking sockets: listen, connect, verify the peer, abort.

Operations that would block raise BlockingIOError.
"""

from __future__ import annotations

import errno
import logging
import os
import select
import socket
import ssl
import stat
import struct
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from streamfactory.backends.socket.headers import MARKER
from streamfactory.backends.socket.tls import make_context
from streamfactory.backends.socket.waiting import READABLE, WRITABLE, poll_busily
from streamfactory.spi import (
    ConnectionFailed,
    NotAuthorized,
    StreamError,
)

if TYPE_CHECKING:
    from streamfactory.backends.socket.addresses import Address
    from streamfactory.backends.socket.options import Settings
    from streamfactory.spi import StreamConfig

log = logging.getLogger(__name__)

_MOST_VIEWS: Final = 512
"""Buffers per system call; the limit of systems is 1024."""
_BACKLOG: Final = 128
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""Errors of `accept` that an immediate retry would repeat."""
_EXHAUSTED_PAUSE: Final = 1.0
"""Seconds."""
_BRIEFLY: Final = 1
"""Milliseconds in which a sender that writes without a pause sends more."""


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
            # With TLS 1.3 a client learns of a rejection only after its handshake.
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


class Port:
    """One address, to listen at or to connect to. One thread at a time."""

    def __init__(
        self, address: Address, settings: Settings, config: StreamConfig
    ) -> None:
        self.address = address
        self.listens = settings.listens
        self._settings = settings
        self._config = config
        self._listener: socket.socket | None = None
        self._inode: int | None = None
        self._context: ssl.SSLContext | None = None
        self._accepts_after = 0.0

    @property
    def descriptors(self) -> list[tuple[int, int]]:
        """The listening socket, to be polled while a slot is free."""
        listener = self._listener
        if listener is None or time.monotonic() < self._accepts_after:
            return []
        return [(listener.fileno(), READABLE)]

    def open(self) -> None:
        """Start listening. May be called twice; does nothing if this side connects.

        Raises:
            ConnectionFailed: transient; the address is in use, or not of this machine.
            ConfigError: config; the TLS files cannot be used.
        """
        if self._settings.tls and self._context is None:
            self._context = make_context(self._config, listens=self.listens)
        if not self.listens or self._listener is not None:
            return
        family, place = self.address.resolve()[0]
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._prepare(sock)
            if self.address.is_unix:
                self._inode = _bind_path(sock, self.address.path)
            else:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                sock.bind(place)
                sock.listen(_BACKLOG)
        except OSError as error:
            sock.close()
            msg = f"cannot listen at {self.address}: {error.strerror or error}"
            raise ConnectionFailed(msg) from error
        self._listener = sock

    def accept(self) -> Connection | None:
        """The next queued connection; None if there is none."""
        if self._listener is None or time.monotonic() < self._accepts_after:
            return None
        try:
            sock, _ = self._listener.accept()
        except OSError as error:
            # Other errors: no connection is queued, or it was closed again.
            if error.errno in _EXHAUSTED:
                # The connection stays queued: without a pause the poll would spin.
                self._accepts_after = time.monotonic() + _EXHAUSTED_PAUSE
                log.warning(
                    "%s: accepting connections pauses for %g s: %s",
                    self.address,
                    _EXHAUSTED_PAUSE,
                    error.strerror,
                )
            return None
        self._prepare(sock)
        made = Connection(sock, str(self.address), connected=True)
        if self._context is not None:
            made.use_tls(self._context, None)
        return made

    def dial(self) -> Connection:
        """Start connecting to the peer.

        Raises:
            ConnectionFailed: transient; no program listens there.
        """
        self.open()
        failure: OSError | None = None
        for family, place in self.address.resolve():
            sock = socket.socket(family, socket.SOCK_STREAM)
            self._prepare(sock)
            code = sock.connect_ex(place)
            if code in (0, errno.EINPROGRESS):
                made = Connection(sock, str(self.address), connected=code == 0)
                if self._context is not None:
                    host = self._config.get("tls.hostname") or self.address.host
                    made.use_tls(self._context, host)
                return made
            sock.close()
            failure = OSError(code, os.strerror(code))
        msg = f"cannot connect to {self.address}: {failure and failure.strerror}"
        raise ConnectionFailed(msg) from failure

    def close(self) -> None:
        """Stop listening. May be called twice."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()
            if self.address.is_unix:
                _remove_path(self.address.path, self._inode)

    def _prepare(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        # Before listen and connect, for TCP: its window is scaled by the size at that
        # time. Accepted Unix sockets do not inherit the sizes.
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            sock.setsockopt(socket.SOL_SOCKET, option, self._settings.buffer)
        _tune(sock)


def _tune(sock: socket.socket) -> None:
    if sock.family == socket.AF_UNIX:
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # A crashed machine sends nothing; keep-alive detects it within two minutes.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 10)):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _bind_path(sock: socket.socket, path: str) -> int:
    """Listen at a path that has mode 0600 from its creation; returns the inode."""
    _refuse_taken(path)
    temporary = f"{path}.{os.urandom(3).hex()}"
    sock.bind(temporary)
    try:
        Path(temporary).chmod(0o600)
        sock.listen(_BACKLOG)
        inode = Path(temporary).stat().st_ino
        Path(temporary).rename(path)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise
    return inode


def _refuse_taken(path: str) -> None:
    """Raise unless the path is free or a stale socket without a listener."""
    try:
        mode = Path(path).lstat().st_mode
    except FileNotFoundError:
        return
    if stat.S_ISSOCK(mode):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.setblocking(False)
            if probe.connect_ex(path) == errno.ECONNREFUSED:
                return
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


def _remove_path(path: str, inode: int | None) -> None:
    with suppress(OSError):
        if Path(path).lstat().st_ino == inode:
            Path(path).unlink()
