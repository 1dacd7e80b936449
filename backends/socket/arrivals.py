"""Accepted and dialled connections whose peers have not proved themselves yet.

Used by both halves. A peer of a reader has proved itself when its TLS handshake is
finished and its schema has been received, a peer of a writer after the handshake. Until
then a connection holds one of a few slots, and holds it for a limited time only.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from streamfactory.backends.socket.waiting import LONGEST_WAIT
from streamfactory.spi import StreamTimeout

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamfactory.backends.socket.connections import Connection, Port
    from streamfactory.backends.socket.options import Settings

log = logging.getLogger(__name__)

_GRACE: Final = 1.0
"""Seconds after which a connection that has not proved itself makes room for one that
the system has queued. A peer in good order needs milliseconds."""


class Peer(Protocol):
    """A connection that may prove itself."""

    connection: Connection

    def advance(self) -> None:
        """Go on as far as possible without waiting; returning is the proof.

        Raises:
            BlockingIOError: The peer has to send more first.
            StreamError: The peer cannot be used.
        """


P = TypeVar("P", bound=Peer)


class Attention:
    """Measures the time in which the owner of some connections looks after them.

    Deadlines count this time only: a peer is not to blame for a reader that spends a
    minute on its last batch. While the owner is busy with other connections the time
    counts in full.
    """

    def __init__(self) -> None:
        self._last = time.monotonic()

    def tick(self) -> float:
        """Seconds since the last call, at most `LONGEST_WAIT`."""
        now = time.monotonic()
        seconds, self._last = min(now - self._last, LONGEST_WAIT), now
        return seconds


class _Arrival(Generic[P]):
    """One connection, and how long it has been waited for."""

    def __init__(self, peer: P, *, dialled: bool) -> None:
        self.peer = peer
        self.dialled = dialled
        self.may_advance = True
        """Whether something may have changed since the last attempt."""
        self.waited = 0.0
        """Seconds of the present phase: the handshake, or the schema after it."""
        self.total = 0.0


class Arrivals(Generic[P]):
    """The connections of one port before their proof. One thread at a time.

    Args:
        port: Where connections come from, or go to.
        settings: Timers.
        make: Makes a peer of a connection.
    """

    def __init__(
        self, port: Port, settings: Settings, make: Callable[[Connection], P]
    ) -> None:
        self._port = port
        self._settings = settings
        self._make = make
        self._arrivals: list[_Arrival[P]] = []
        self._has_dropped = False

    def __len__(self) -> int:
        return len(self._arrivals)

    @property
    def descriptors(self) -> list[tuple[int, int]]:
        """Connections to poll."""
        connections = (arrival.peer.connection for arrival in self._arrivals)
        return [(each.fileno(), each.waits_for) for each in connections]

    def notice(self, ready: set[int]) -> None:
        """Take the result of a poll into account."""
        for arrival in self._arrivals:
            if arrival.peer.connection.fileno() in ready:
                arrival.may_advance = True

    def accept(self, slots: int) -> None:
        """Accept queued connections while slots are free.

        Without a free one, the oldest connection that had its time makes room.
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
            self._arrivals.append(_Arrival(self._make(connection), dialled=False))

    def dial(self) -> None:
        """Connect to the other side.

        Raises:
            ConnectionFailed: transient; nobody is there.
        """
        made = self._make(self._port.dial())
        self._arrivals.append(_Arrival(made, dialled=True))

    def advance(self, seconds: float) -> list[tuple[P, Exception | None]]:
        """Let all go on; answers those that are done, and forgets them.

        Args:
            seconds: `Attention` since the last call.

        Returns:
            Peers that have proved themselves, with None, and peers that failed, with
            the reason; the caller closes these.
        """
        done: list[tuple[P, Exception | None]] = []
        for arrival in list(self._arrivals):
            try:
                self._advance(arrival, seconds)
            except BlockingIOError:
                continue
            except Exception as error:  # noqa: BLE001 - handed to the caller
                done.append((arrival.peer, error))
            else:
                done.append((arrival.peer, None))
            self._arrivals.remove(arrival)
        return done

    def drain(self) -> list[P]:
        """All of them, forgotten here: the caller closes them."""
        peers = [arrival.peer for arrival in self._arrivals]
        self._arrivals.clear()
        return peers

    def close(self) -> None:
        """Close all of them."""
        for peer in self.drain():
            peer.connection.close()

    def _oldest(self) -> _Arrival[P] | None:
        """The first connection that may be dropped for another one."""
        return next((each for each in self._arrivals if each.total >= _GRACE), None)

    def _drop(self, arrival: _Arrival[P]) -> None:
        self._arrivals.remove(arrival)
        connection = arrival.peer.connection
        connection.break_off(torn=False)
        # Once: whoever floods a port does not flood the log as well.
        level = logging.DEBUG if self._has_dropped else logging.WARNING
        what = "%s: too many connections are silent; the oldest make room for others"
        log.log(level, what, connection.name)
        self._has_dropped = True

    def _advance(self, arrival: _Arrival[P], seconds: float) -> None:
        connection = arrival.peer.connection
        was_open = connection.is_open
        if arrival.may_advance:
            try:
                arrival.peer.advance()
            except BlockingIOError:
                arrival.may_advance = False
            else:
                return
        arrival.total += seconds
        arrival.waited = 0.0 if connection.is_open > was_open else arrival.waited
        arrival.waited += seconds
        self._check_deadline(arrival)
        raise BlockingIOError

    def _check_deadline(self, arrival: _Arrival[P]) -> None:
        """Refuse an arrival whose time is over.

        Raises:
            StreamTimeout: transient.
        """
        settings, connection = self._settings, arrival.peer.connection
        if arrival.dialled:
            waited, limit = time.monotonic() - connection.since, settings.timeout
            what, option = "not connected within", "connection.timeout.millis"
        elif not connection.is_open:
            waited, limit = arrival.waited, settings.handshake
            what, option = "no TLS handshake within", "handshake.timeout.millis"
        else:
            waited, limit = arrival.waited, settings.schema
            what, option = "no schema within", "schema.timeout.millis"
        if waited > limit:
            millis = round(limit * 1000)
            msg = f"{connection.name}: {what} {millis} ms ({option})"
            raise StreamTimeout(msg)
