"""Connections of the page server: with deadlines, and with TLS.

Waitress has no TLS. Servers of WSGI that have it, such as cheroot and gunicorn, read a
request in a thread of their pool: a few slow clients occupy all of them.
"""

from __future__ import annotations

import ssl
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from waitress.channel import HTTPChannel

if TYPE_CHECKING:
    from collections.abc import Iterable

HEADER_SECONDS: Final = 3.0
"""In which a client sends the header of its first request, after it connected."""
CONNECTION_SECONDS: Final = 60.0
"""After which a connection without a request that is being answered is closed: a client
that reads an answer byte by byte would keep it for ever."""
RECORD_BYTES: Final = 16 * 1024
"""The most that a record of TLS has. Less would leave a part of it in OpenSSL, where
`poll` does not see it."""


class Channel(HTTPChannel):  # type: ignore[misc]  # waitress has no annotations
    """A connection that has deadlines.

    Waitress counts the time since the last byte: a client that sends a byte every few
    seconds would keep its connection for ever.
    """

    last_activity: float

    def __init__(self, server: Any, *arguments: Any, **named: Any) -> None:
        # Not waitress's `creation_time`, which is wrong once the clock was set.
        self._began = time.monotonic()
        self._has_asked = False
        """Whether the client has sent the header of a request."""
        super().__init__(server, *arguments, **named)
        # The server counts its own two descriptors, too, and accepts none at the limit.
        if len(server._map) >= server.adj.connection_limit:
            _close_one(server.active_channels.values(), self)

    @property
    def waits(self) -> bool:
        """Whether no request is being answered."""
        return not self.requests and not self.total_outbufs_len

    def readable(self) -> bool:
        """Whether more is read; called at each turn of the loop, before `writable`."""
        age = time.monotonic() - self._began
        patience = CONNECTION_SECONDS if self._has_asked else HEADER_SECONDS
        if age > patience and not self.requests:
            # At once: `will_close` waits until the client takes what it is sent.
            self.handle_close()
            return False
        return bool(super().readable())

    def writable(self) -> bool:
        """Whether there is something to send."""
        return bool(self.connected and super().writable())

    def handle_read(self) -> None:
        """Read what the client sent; part of a request is no activity."""
        before = self.last_activity
        super().handle_read()
        if self.request is not None:
            self.last_activity = before
        if self.requests or (self.request and self.request.headers_finished):
            self._has_asked = True


def _close_one(channels: Iterable[Channel], but: Channel) -> None:
    """Close the connection that waits longest for a request, to keep room for others.

    A client that sends its request at once is not the one, however many send none.
    """
    waiting = [one for one in channels if one.waits and one is not but]
    if waiting:
        min(waiting, key=lambda one: one.last_activity).handle_close()


class TlsChannel(Channel):
    """A connection with TLS, whose socket is an `ssl.SSLSocket` that does not block.

    The first reads are the handshake. It has the deadline of a request, and is short
    enough for the buffer of the socket, so that nothing of it waits to be sent.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self._received = b""
        # A worker sends while the loop receives; OpenSSL allows one of them at a time.
        self._using = threading.Lock()
        super().__init__(*arguments, **named)

    def handle_read(self) -> None:
        """Read a record; nothing where only a part of it, or no data, is there."""
        try:
            with self._using:
                self._received = self.socket.recv(RECORD_BYTES)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        except OSError:  # no TLS, or no certificate that is accepted
            self.handle_close()
            return
        super().handle_read()

    def recv(self, buffer_size: int) -> bytes:  # noqa: ARG002 - of the base class
        """The record that was read; empty at the end of the connection."""
        if not self._received:
            self.handle_close()
        return self._received

    def send(self, data: bytes, do_close: bool = True) -> int:
        """Send as much as the socket takes, as the base class."""
        try:
            with self._using:
                return int(super().send(data, do_close))
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return 0
