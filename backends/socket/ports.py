"""Where connections come from: a port listens at an address, or connects to it.

Operations that would block return at once.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from streamfactory.backends.socket.connections import Connection
from streamfactory.backends.socket.tls import make_context
from streamfactory.backends.socket.waiting import READABLE
from streamfactory.live.addresses import check_free
from streamfactory.spi import ConnectionFailed

if TYPE_CHECKING:
    import ssl

    from streamfactory.backends.socket.addresses import Address
    from streamfactory.backends.socket.options import Settings
    from streamfactory.spi import StreamConfig

log = logging.getLogger(__name__)

_BACKLOG: Final = 128
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""Errors of `accept` that an immediate retry would repeat."""
_EXHAUSTED_PAUSE: Final = 1.0
"""Seconds."""


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
    check_free(path)
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


def _remove_path(path: str, inode: int | None) -> None:
    with suppress(OSError):
        if Path(path).lstat().st_ino == inode:
            Path(path).unlink()
