"""Sockets: listening, connecting, who the peer is, and how a connection is broken.

Nothing here blocks: what cannot go on raises BlockingIOError.
"""

from __future__ import annotations

import errno
import logging
import os
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
from streamfactory.backends.socket.waiting import READABLE, WRITABLE
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
"""Of one call; systems allow 1024."""
_BACKLOG: Final = 128
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""Errors of `accept` that another attempt right away would only repeat."""
_EXHAUSTED_PAUSE: Final = 1.0
"""Seconds."""


class Connection:
    """One connection, which may still be on its way. One thread at a time."""

    def __init__(self, sock: socket.socket, name: str, *, connected: bool) -> None:
        self.name = name
        self.waits_for = READABLE if connected else WRITABLE
        self.is_open = False
        """Whether it is connected, and its peer known."""
        self.since = time.monotonic()
        self._socket = sock
        self._connected = connected
        self._tls: ssl.SSLContext | None = None
        self._hostname: str | None = None

    def use_tls(self, context: ssl.SSLContext, hostname: str | None) -> None:
        """Speak TLS; a host name is that of the side that listens."""
        self._tls, self._hostname = context, hostname

    @property
    def is_tls(self) -> bool:
        """Whether bytes may be held back between the system and `receive`."""
        return self._tls is not None

    def fileno(self) -> int:
        return self._socket.fileno()

    def advance(self) -> None:
        """Go on with connecting, and with the handshake.

        Raises:
            BlockingIOError: Not there yet.
            NotAuthorized: permanent; the peer is not who it should be.
            ConnectionFailed: transient.
        """
        try:
            if not self._connected:
                self._finish_connecting()
            if self._tls is not None:
                self._shake_hands(self._tls)
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
        """Fill views with what is there; 0 at the end of all bytes.

        Raises:
            BlockingIOError: Nothing is there yet.
            OSError: The connection is torn.
        """
        if not isinstance(self._socket, ssl.SSLSocket):
            return int(self._socket.recvmsg_into(views)[0])
        try:
            return self._socket.recv_into(views[0])
        except ssl.SSLError as error:
            self._translate(error)
            raise

    def send(self, views: list[memoryview]) -> int:
        """Send what there is room for.

        Raises:
            BlockingIOError: There is none.
            OSError: The connection is torn.
        """
        if not isinstance(self._socket, ssl.SSLSocket):
            return self._socket.sendmsg(views[:_MOST_VIEWS])
        try:
            return self._socket.send(views[0])
        except ssl.SSLError as error:
            self._translate(error)
            raise

    def peer_is_gone(self) -> bool:
        """Whether the peer has closed its side; takes nothing, never blocks.

        Raises:
            ConnectionFailed: transient; the peer sent something.
            NotAuthorized: permanent; it refuses this side.
            OSError: The connection is torn.
        """
        try:
            if isinstance(self._socket, ssl.SSLSocket):
                spoken = self._peek_tls(self._socket)
            else:
                flags = socket.MSG_PEEK | socket.MSG_DONTWAIT
                spoken = self._socket.recv(1, flags)
        except BlockingIOError:
            return False
        if spoken:
            msg = f"{self.name}: the reader sent bytes, so it is no reader"
            raise ConnectionFailed(msg)
        return True

    def end_sending(self) -> None:
        """Close this side: nothing more is sent.

        Raises:
            NotAuthorized: permanent; the peer has refused this side meanwhile.
            ConnectionFailed: transient; it closed or refused at this very moment.
        """
        if not isinstance(self._socket, ssl.SSLSocket):
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)
            return
        try:
            if self.peer_is_gone():
                return
            self._socket.unwrap()
        except StreamError:
            raise
        except OSError:
            return  # its answer is not waited for here
        # OpenSSL took in the last word, and does not tell a refusal from a close.
        msg = f"{self.name}: the reader closed, or refused, just as the stream ended"
        raise ConnectionFailed(msg, remedy="look whether it has all, or send it again")

    def break_off(self, *, torn: bool) -> None:
        """Close so that the peer learns of a failure.

        A peer of another make takes bare end of bytes for an end of the stream: half
        of a prefix shows that it is none.

        Args:
            torn: Whether a message is half sent already.
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
        """Close; twice is fine."""
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

    def _shake_hands(self, context: ssl.SSLContext) -> None:
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
        """Raise BlockingIOError for what has to wait; NotAuthorized for a refusal."""
        if isinstance(error, ssl.SSLWantReadError):
            self.waits_for = READABLE
            raise BlockingIOError from error
        if isinstance(error, ssl.SSLWantWriteError):
            self.waits_for = WRITABLE
            raise BlockingIOError from error
        if "_ALERT_" in (error.reason or "") and self.is_open:
            # Under TLS 1.3 who comes learns only afterwards that it is not wanted.
            msg = f"{self.name}: the peer refuses: {error.reason}"
            raise NotAuthorized(msg) from error

    def _peek_tls(self, sock: ssl.SSLSocket) -> bytes:
        try:
            return sock.recv(1)
        except ssl.SSLError as error:
            self._translate(error)
            raise

    def _check_user(self) -> None:
        """Refuse the processes of other users (the file's mode does, mostly)."""
        option = getattr(socket, "SO_PEERCRED", None)
        if option is None:
            msg = f"{self.name}: this system does not report the user of the peer"
            raise NotAuthorized(msg, remedy="use TCP on the loopback address")
        form = "3i"
        told = self._socket.getsockopt(socket.SOL_SOCKET, option, struct.calcsize(form))
        user = struct.unpack(form, told)[1]
        if user != os.geteuid():
            msg = f"{self.name}: the peer is of user {user}, not {os.geteuid()}"
            raise NotAuthorized(msg, remedy="run both sides as the same user")


class Port:
    """One address: connections come there, or go there. One thread at a time."""

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
        """The listener, to be polled while a slot is free for who comes."""
        listener = self._listener
        if listener is None or time.monotonic() < self._accepts_after:
            return []
        return [(listener.fileno(), READABLE)]

    def open(self) -> None:
        """Listen; twice is fine. Where this side connects, there is nothing to do.

        Raises:
            ConnectionFailed: transient; the address is taken, or not of this machine.
            ConfigError: config; the files of TLS cannot be used.
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
        """Who has come; None when nobody has."""
        if self._listener is None or time.monotonic() < self._accepts_after:
            return None
        try:
            sock, _ = self._listener.accept()
        except OSError as error:
            # Otherwise nobody is queued, or somebody who is gone again.
            if error.errno in _EXHAUSTED:
                # The connection stays queued: without a pause the poll would spin.
                self._accepts_after = time.monotonic() + _EXHAUSTED_PAUSE
                log.warning(
                    "%s: connections are not accepted for %g s: %s",
                    self.address,
                    _EXHAUSTED_PAUSE,
                    error.strerror,
                )
            return None
        sock.setblocking(False)
        _tune(sock)
        made = Connection(sock, str(self.address), connected=True)
        if self._context is not None:
            made.use_tls(self._context, None)
        return made

    def dial(self) -> Connection:
        """Set out for the other side.

        Raises:
            ConnectionFailed: transient; nobody is there.
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
        """Stop listening; twice is fine."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()
            if self.address.is_unix:
                _remove_path(self.address.path, self._inode)

    def _prepare(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        # Before anything else: a connection takes them over when it is made.
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            sock.setsockopt(socket.SOL_SOCKET, option, self._settings.buffer)
        _tune(sock)


def _tune(sock: socket.socket) -> None:
    if sock.family == socket.AF_UNIX:
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # A machine that is gone sends no word: it is noticed within two minutes.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 10)):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _bind_path(sock: socket.socket, path: str) -> int:
    """Listen at a path, with mode 0600 from the first moment; answers its inode."""
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
    """A socket that nobody listens at any more may be replaced, all else not."""
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
