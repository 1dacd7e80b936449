"""ZeroMQ sockets: options, endpoints and monitoring."""

from __future__ import annotations

import errno
import logging
import os
import stat
import struct
import threading
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import zmq

from streamfactory.backends.zeromq.draining import Lingering
from streamfactory.backends.zeromq.options import Settings
from streamfactory.backends.zeromq.security import AllowList, secure
from streamfactory.live.addresses import check_free
from streamfactory.spi import ConnectionFailed, NotAuthorized, StreamError

if TYPE_CHECKING:
    from streamfactory.backends.zeromq.endpoints import Endpoint
    from streamfactory.spi import StreamConfig
    from streamfactory.spi.waking import Wake

log = logging.getLogger(__name__)

_PLAIN_MESSAGE: Final = 16 * 1024
"""The same for messages with one record."""
_CONTROL: Final = 64 * 1024
"""Maximum frame that a sender accepts: a reply, or a subscription."""
_IPC_FILTER_UID: Final = 59
"""Option of libzmq 4: the user whose processes may connect to an ipc endpoint."""
_CRYPTOGRAPHIC, _MISMATCH = 0x11000001, 0x11000002
"""Values of a failed handshake (zmq.h): wrong key; CURVE on one side only."""
_CLOSED: Final = 10.0
"""Seconds for which a peer has to close every connection in its CURVE handshake, as it
does without a reason if the key differs, until that is believed."""
_EVENTS: Final = (
    zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_ACCEPTED
    | zmq.EVENT_CONNECTED
    | zmq.EVENT_DISCONNECTED
)
_OPENED: Final = (zmq.EVENT_ACCEPTED, zmq.EVENT_CONNECTED)
_EVENT: Final = struct.Struct("=HI")


class SocketContext:
    """The ZeroMQ context of one process, with its allow-list; opened by a socket.

    inproc endpoints are only visible within one context, so they share pyzmq's default.
    """

    def __init__(self, config: StreamConfig) -> None:
        self.config = config
        self.settings = settings = Settings(config)
        every = (e for endpoints in settings.addresses for e in endpoints)
        self.is_shared = any(e.transport == "inproc" for e in every)
        self._lock = threading.Lock()
        self._context: zmq.Context[Any] | None = None
        self._allow_list: AllowList | None = None
        self._closing: list[Lingering] = []

    def socket(self, kind: int) -> zmq.Socket[bytes]:
        """Create a socket; the first one starts the context."""
        with self._lock:
            if self._context is None:
                self._context = self._started()
            made: zmq.Socket[bytes] = self._context.socket(kind)
            return made

    def linger(self, connections: Lingering) -> None:
        """Wait for the peers of a closed socket when the context is closed."""
        with self._lock:
            self._closing.append(connections)

    def close(self) -> bool:
        """Terminate the context; waits for lingering sockets and their peers.

        Returns:
            Whether all of that ended before its time was over.
        """
        with self._lock:
            context, self._context = self._context, None
            allow_list, self._allow_list = self._allow_list, None
            closing, self._closing = self._closing, []
        try:
            if context is not None and not self.is_shared:
                context.term()
        finally:
            ended = [connections.drain() for connections in closing]
        if allow_list is not None:
            allow_list.join()
        return all(ended)

    def _started(self) -> zmq.Context[Any]:
        context = zmq.Context.instance() if self.is_shared else zmq.Context()
        if self.settings.listens and "curve.secret.key" in self.config.settings:
            allowed = self.config["curve.allowed.keys"]
            self._allow_list = AllowList(context, allowed)
        return context


class MonitoredSocket:
    """One socket at the endpoints of one partition. One thread at a time.

    Args:
        place: The context.
        kind: A ``zmq.SocketType``.
        endpoints: The endpoints of the partition.
        options: Socket options, set before it is bound or connected.

    Raises:
        ConnectionFailed: transient; an endpoint is in use, or does not exist.
        NotAuthorized: permanent; the system denies access.
    """

    def __init__(
        self,
        place: SocketContext,
        kind: int,
        endpoints: tuple[Endpoint, ...],
        options: dict[int, int | bytes],
    ) -> None:
        self._place = place
        self._endpoints = endpoints
        self._failing: tuple[float, StreamError] | None = None
        """Since when no handshake succeeds, and the last failure without a reason."""
        self._warned: set[int] = set()
        self.handshakes = 0
        """Number of connections so far, including reconnections."""
        self.disconnects = 0
        self.lost = 0
        """Number of connections that were lost after their handshake."""
        self._connections: set[int] = set()
        """Descriptors of libzmq's connections."""
        self._failed_handshakes = 0
        """Those whose disconnection was not reported yet."""
        self.socket = place.socket(kind)
        self._monitor: zmq.Socket[bytes] | None = None
        try:
            self._set(options)
            self._watch()
            for endpoint in endpoints:
                self._open(endpoint)
        except zmq.ZMQError as error:
            self.close(0)
            raise translated(error, self.name) from error
        except BaseException:
            self.close(0)
            raise

    @property
    def name(self) -> str:
        """The endpoints, for log and error messages."""
        return ", ".join(map(str, self._endpoints))

    def wait(self, events: int, seconds: float, *wakes: Wake | None) -> bool:
        """Wait until the socket is ready, a peer connects or disconnects, or timeout.

        Returns:
            Whether the socket is ready.

        Raises:
            NotAuthorized, ConnectionFailed: As `check`.
        """
        wanted: list[Any] = [(self.socket, events)]
        if self._monitor is not None:
            wanted.append((self._monitor, zmq.POLLIN))
        wanted += [(wake.fileno(), zmq.POLLIN) for wake in wakes if wake is not None]
        millis = max(0, int(seconds * 1000 + 0.999))
        found = dict(zmq.zmq_poll(wanted, millis))
        if self._monitor in found:
            self.check()
        return self.socket in found

    def check(self) -> None:
        """Process the events of the monitor.

        Raises:
            NotAuthorized: permanent; the peer rejected this side's key, its key differs
                from ``curve.server.key``, or only one side uses CURVE.
            ConnectionFailed: transient; the peer is not a ZeroMQ program.
        """
        while self._monitor is not None:
            try:
                event, address = self._monitor.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            kind, value = _EVENT.unpack(event)
            if kind in _OPENED:
                self._connections.add(value)
            elif kind == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self.handshakes += 1
                self._failing = None
            elif kind == zmq.EVENT_DISCONNECTED:
                self._connections.discard(value)
                self.disconnects += 1
                if self._failed_handshakes:
                    self._failed_handshakes -= 1
                else:
                    self.lost += 1
            else:
                self._failed_handshakes += 1
                self._failed(kind, value, address.decode(errors="replace"))

    def check_handshakes(self) -> None:
        """Raise why no peer could connect, after a wait for one has ended.

        Raises:
            NotAuthorized, ConnectionFailed: As `check`.
        """
        if self._failing is not None:
            raise self._failing[1]

    def close(self, linger: float) -> None:
        """Close the socket; queued messages are sent for ``linger`` seconds.

        `SocketContext.close` waits until they are received.
        """
        if self.socket.closed:
            return
        if linger and not self._place.is_shared:
            with suppress(StreamError):
                self.check()
            ports = {endpoint.port for endpoint in self._endpoints}
            self._place.linger(Lingering(self._connections, ports, linger))
        # Closing the monitor first would block libzmq's thread.
        with suppress(zmq.ZMQError):
            self.socket.disable_monitor()
        if self._monitor is not None:
            self._monitor.close(0)
            self._monitor = None
        self.socket.close(int(linger * 1000))

    # --- opening ------------------------------------------------------------------

    def _set(self, options: dict[int, int | bytes]) -> None:
        settings, socket = self._place.settings, self.socket
        socket.linger = 0
        mark = high_water_mark(settings)
        socket.sndhwm = socket.rcvhwm = mark
        if settings.heartbeat:
            socket.heartbeat_ivl = settings.heartbeat
            socket.heartbeat_timeout = socket.heartbeat_ttl = 3 * settings.heartbeat
        socket.reconnect_ivl, socket.reconnect_ivl_max = 50, 1000
        socket.maxmsgsize = _CONTROL
        socket.ipv6 = any(endpoint.is_ipv6 for endpoint in self._endpoints)
        if settings.listens and any(e.transport == "ipc" for e in self._endpoints):
            socket.setsockopt(_IPC_FILTER_UID, os.getuid())
        for option, value in options.items():
            socket.setsockopt(option, value)
        secure(socket, self._place.config, binds=settings.listens)

    def _watch(self) -> None:
        """Start a monitor: sockets do not report failed handshakes."""
        if all(endpoint.transport == "inproc" for endpoint in self._endpoints):
            return
        address = f"inproc://streamfactory-monitor-{uuid.uuid4().hex}"
        self.socket.monitor(address, _EVENTS)
        self._monitor = self._place.socket(zmq.PAIR)
        self._monitor.linger = 0
        self._monitor.rcvhwm = 0
        self._monitor.connect(address)

    def _open(self, endpoint: Endpoint) -> None:
        # libzmq resolves no names when binding, and localhost must be this machine.
        local = endpoint.transport == "tcp" and endpoint.host == "localhost"
        text = str(endpoint).replace("localhost", "127.0.0.1", 1) if local else None
        if not self._place.settings.listens:
            self.socket.connect(text or str(endpoint))
            return
        if endpoint.transport == "ipc":
            # libzmq would take over a path at which another process listens.
            try:
                check_free(endpoint.name)
            except OSError as error:
                raise _in_use(str(endpoint)) from error
        self.socket.bind(text or str(endpoint))
        if endpoint.transport == "ipc":
            Path(endpoint.name).chmod(stat.S_IRUSR | stat.S_IWUSR)

    # --- the monitor --------------------------------------------------------------

    def _failed(self, kind: int, value: int, address: str) -> None:
        error = self._reason(kind, value)
        if self._place.settings.listens:
            # An unauthorized peer must neither fail the stream nor flood the log.
            level = logging.DEBUG if kind in self._warned else logging.WARNING
            self._warned.add(kind)
            log.log(level, "connection to %s rejected: %s", address, error.what)
            return
        if kind != zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL:
            raise error
        # The peer may be starting, or something between may reset connections: only
        # time shows whether the keys differ.
        now, patience = time.monotonic(), self._place.settings.timeout
        since = now if self._failing is None else self._failing[0]
        self._failing = since, error
        if isinstance(error, NotAuthorized):
            patience = min(patience, _CLOSED)
        if now - since >= patience:
            raise error

    def _reason(self, kind: int, value: int) -> StreamError:
        where, curve = self.name, "curve.secret.key" in self._place.config.settings
        if kind == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
            what = f"{where}: the peer rejected the CURVE key of this side ({value})"
            remedy = "add its public key to curve.allowed.keys of the side that binds"
            return NotAuthorized(what, remedy=remedy)
        if value == _MISMATCH:
            what = f"{where}: one side uses CURVE and the other does not"
            return NotAuthorized(what, remedy="set curve.secret.key on both sides")
        if kind == zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL and value == errno.ECONNRESET:
            what = f"{where}: the connection is reset in its handshake"
            remedy = "check the peer, and what lies between it and this machine"
            return ConnectionFailed(what, remedy=remedy)
        if value == _CRYPTOGRAPHIC or curve:
            what = f"{where}: the CURVE handshake failed: the keys do not match"
            remedy = "set curve.server.key to the public key of the side that binds"
            return NotAuthorized(what, remedy=remedy)
        what = f"{where}: the handshake failed (0x{value:x})"
        remedy = (
            "check that the peer runs and is a ZeroMQ program; if it uses CURVE, set "
        )
        return ConnectionFailed(what, remedy=f"{remedy}curve.secret.key")


def high_water_mark(settings: Settings) -> int:
    """Messages that may be queued for a peer, from ``buffer.bytes``."""
    each = _PLAIN_MESSAGE if settings.is_plain else settings.frame
    return max(2, settings.buffer // each)


def _in_use(where: str) -> ConnectionFailed:
    what = f"{where}: the endpoint is in use"
    return ConnectionFailed(what, remedy="stop the program there, or bind elsewhere")


def translated(error: zmq.ZMQError, where: str) -> StreamError:
    """The `StreamError` for an error of libzmq."""
    if error.errno == errno.EADDRINUSE:
        return _in_use(where)
    what = f"{where}: {error.strerror}"
    if error.errno in (errno.EACCES, errno.EPERM):
        return NotAuthorized(what)
    if error.errno in (errno.ENODEV, errno.EADDRNOTAVAIL):
        what = f"{where}: this machine has no such address to bind to"
    return ConnectionFailed(what)
