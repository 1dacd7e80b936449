"""Accepted and outgoing connections before their peers are validated.

Used for reading and writing. The peer of a reader is validated once its TLS handshake
is complete and its schema was received; the peer of a writer after the handshake. Until
then a connection occupies one of a few slots, and only for a limited time.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from streamfactory.backends.socket.waiting import LONGEST_WAIT
from streamfactory.spi import StreamTimeout

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamfactory.backends.socket.connections import Connection
    from streamfactory.backends.socket.options import Settings
    from streamfactory.backends.socket.ports import Port

log = logging.getLogger(__name__)

_GRACE: Final = 1.0
"""Seconds after which a connection that is not validated may be dropped in favour of a
queued one. A well-behaved peer needs milliseconds."""


class Peer(Protocol):
    """A connection that is being validated."""

    connection: Connection

    def advance(self) -> None:
        """Continue as far as possible without blocking; returns when validated.

        Raises:
            BlockingIOError: More data of the peer is needed.
            StreamError: The peer cannot be used.
        """


P = TypeVar("P", bound=Peer)


class ActiveTimer:
    """Measures the time in which the owner serves its connections.

    Deadlines count only this time: a peer is not blamed for a reader that spends a
    minute on its last batch. Time spent on other connections counts.
    """

    def __init__(self) -> None:
        self._last = time.monotonic()

    def tick(self) -> float:
        """Seconds since the last call, at most `LONGEST_WAIT`."""
        now = time.monotonic()
        seconds, self._last = min(now - self._last, LONGEST_WAIT), now
        return seconds


class _PendingConnection(Generic[P]):
    """One connection, and how long it has been pending."""

    def __init__(self, peer: P, *, dialled: bool) -> None:
        self.peer = peer
        self.dialled = dialled
        self.may_advance = True
        """Whether the socket may have become ready since the last attempt."""
        self.waited = 0.0
        """Seconds in the current phase: handshake, or schema."""
        self.total = 0.0


class PendingConnections(Generic[P]):
    """The connections of one port that are not validated. One thread at a time.

    Args:
        port: The port that accepts or opens them.
        settings: Timeouts.
        make: Creates a peer from a connection.
    """

    def __init__(
        self, port: Port, settings: Settings, make: Callable[[Connection], P]
    ) -> None:
        self._port = port
        self._settings = settings
        self._make = make
        self._connections: list[_PendingConnection[P]] = []
        self._has_dropped = False

    def __len__(self) -> int:
        return len(self._connections)

    @property
    def descriptors(self) -> list[tuple[int, int]]:
        """Connections to poll."""
        connections = (pending.peer.connection for pending in self._connections)
        return [(each.fileno(), each.waits_for) for each in connections]

    def notice(self, ready: set[int]) -> None:
        """Record the result of a poll."""
        for pending in self._connections:
            if pending.peer.connection.fileno() in ready:
                pending.may_advance = True

    def accept(self, slots: int) -> None:
        """Accept queued connections while slots are free.

        If no slot is free, the oldest connection after its grace period is dropped.
        """
        while slots > 0:
            oldest = self._oldest() if len(self) >= slots else None
            if len(self) >= slots and oldest is None:
                return
            connection = self._port.accept()
            if connection is None:
                return
            if oldest is not None:
                self._drop(oldest)
            self._connections.append(
                _PendingConnection(self._make(connection), dialled=False)
            )

    def dial(self) -> None:
        """Connect to the peer.

        Raises:
            ConnectionFailed: transient; no program listens there.
        """
        made = self._make(self._port.dial())
        self._connections.append(_PendingConnection(made, dialled=True))

    def advance(self, seconds: float) -> list[tuple[P, Exception | None]]:
        """Advance all connections; returns and removes those that are finished.

        Args:
            seconds: `ActiveTimer` time since the last call.

        Returns:
            Validated peers with None, and failed peers with the reason. The caller
            closes the failed ones.
        """
        done: list[tuple[P, Exception | None]] = []
        for pending in list(self._connections):
            try:
                self._advance(pending, seconds)
            except BlockingIOError:
                continue
            except Exception as error:  # noqa: BLE001 - returned to the caller
                done.append((pending.peer, error))
            else:
                done.append((pending.peer, None))
            self._connections.remove(pending)
        return done

    def drain(self) -> list[P]:
        """Remove and return all peers. The caller closes them."""
        peers = [pending.peer for pending in self._connections]
        self._connections.clear()
        return peers

    def close(self) -> None:
        """Close all of them."""
        for peer in self.drain():
            peer.connection.close()

    def _oldest(self) -> _PendingConnection[P] | None:
        """The first connection whose grace period is over."""
        return next((each for each in self._connections if each.total >= _GRACE), None)

    def _drop(self, pending: _PendingConnection[P]) -> None:
        self._connections.remove(pending)
        connection = pending.peer.connection
        connection.break_off(torn=False)
        # Warn once: flooding a port must not flood the log.
        level = logging.DEBUG if self._has_dropped else logging.WARNING
        what = "%s: too many idle connections; the oldest ones are dropped"
        log.log(level, what, connection.name)
        self._has_dropped = True

    def _advance(self, pending: _PendingConnection[P], seconds: float) -> None:
        connection = pending.peer.connection
        was_open = connection.is_open
        if pending.may_advance:
            try:
                pending.peer.advance()
            except BlockingIOError:
                pending.may_advance = False
            else:
                return
        pending.total += seconds
        pending.waited = 0.0 if connection.is_open > was_open else pending.waited
        pending.waited += seconds
        self._check_deadline(pending)
        raise BlockingIOError

    def _check_deadline(self, pending: _PendingConnection[P]) -> None:
        """Raise if the time of a connection is over.

        Raises:
            StreamTimeout: transient.
        """
        settings, connection = self._settings, pending.peer.connection
        if pending.dialled:
            waited, limit = time.monotonic() - connection.since, settings.timeout
            what, option = "connecting took longer than", "connection.timeout.millis"
        elif not connection.is_open:
            waited, limit = pending.waited, settings.handshake
            what, option = (
                "the TLS handshake took longer than",
                "handshake.timeout.millis",
            )
        else:
            waited, limit = pending.waited, settings.schema
            what, option = (
                "receiving the schema took longer than",
                "schema.timeout.millis",
            )
        if waited > limit:
            millis = round(limit * 1000)
            msg = f"{connection.name}: {what} {millis} ms ({option})"
            raise StreamTimeout(msg)
