"""Waits until peers have received what a closed socket of ZeroMQ has sent.

libzmq closes a connection once the system has accepted its bytes. If the peer sends
something then, for instance a heartbeat, the system resets the connection and discards
what it has not transmitted, which over a slow link may be megabytes. A duplicate of the
descriptor keeps the connection open until the peer has read to its end.
"""

from __future__ import annotations

import select
import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_LONGEST_POLL: Final = 0.25
"""Maximum seconds of one poll: signals are handled between two."""
_READ: Final = 65536


class Lingering:
    """The connections of one socket that is about to be closed.

    Args:
        descriptors: Of libzmq's connections.
        ports: TCP ports of the endpoints. A descriptor may meanwhile belong to another
            file of the process; what is not connected to one of the ports is left out.
        seconds: How long peers may take.
    """

    def __init__(
        self, descriptors: Iterable[int], ports: set[int], seconds: float
    ) -> None:
        self._until = time.monotonic() + seconds
        self._connections: list[socket.socket] = []
        for descriptor in descriptors:
            with suppress(OSError):  # closed meanwhile
                connection = socket.fromfd(
                    descriptor, socket.AF_INET, socket.SOCK_STREAM
                )
                if _is_at(connection, ports):
                    self._connections.append(connection)
                else:
                    connection.close()

    def drain(self) -> bool:
        """End what is sent, wait until each peer has closed, and close.

        libzmq has to have closed the connections before.

        Returns:
            Whether all peers have closed in time.
        """
        every = self._connections
        waiting = {one.fileno(): one for one in every if _has_ended_sending(one)}
        poll = select.poll()
        for descriptor in waiting:
            poll.register(descriptor, select.POLLIN)
        try:
            while (left := self._until - time.monotonic()) > 0 and waiting:
                for descriptor, _ in poll.poll(min(left, _LONGEST_POLL) * 1000):
                    if _has_closed(waiting[descriptor]):
                        poll.unregister(descriptor)
                        del waiting[descriptor]
            return left > 0
        finally:
            for connection in every:
                connection.close()


def _is_at(connection: socket.socket, ports: set[int]) -> bool:
    """Whether it is a TCP connection to or from one of the ports."""
    try:
        both = connection.getsockname(), connection.getpeername()
    except OSError:
        return False
    return any(isinstance(one, tuple) and one[1] in ports for one in both)


def _has_ended_sending(connection: socket.socket) -> bool:
    """End the sending direction; False if the peer has closed already."""
    try:
        connection.setblocking(False)
        connection.shutdown(socket.SHUT_WR)
    except OSError:
        return False
    return True


def _has_closed(connection: socket.socket) -> bool:
    """Whether the peer has closed; discards what it has sent."""
    try:
        return not connection.recv(_READ)
    except BlockingIOError:
        return False
    except OSError:
        return True
