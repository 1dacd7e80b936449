"""One connection of a process to a server: calls, deadlines, translation of errors."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow.flight as fl

from streamfactory.backends.flight.protocol.codec import decode, encode
from streamfactory.backends.flight.protocol.failures import from_status
from streamfactory.spi import ClosedError, FormatRefused

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")


class Connection:
    """A Flight client that is opened on first use, and again in a forked child.

    Thread-safe. gRPC does not survive a fork: a child keeps what it inherited, unused.

    Args:
        location: Of the server: ``grpc://host:port`` or ``grpc+tls://host:port``.
        timeout: Seconds for one call without rows.
        tls: Arguments of `pyarrow.flight.FlightClient`.
        headers: Sent with each call; the values may be secrets.
    """

    def __init__(
        self,
        location: str,
        timeout: float,
        tls: dict[str, Any] | None = None,
        headers: tuple[tuple[bytes, bytes], ...] = (),
    ) -> None:
        self.location = location
        self.timeout = timeout
        self._tls = tls or {}
        self._headers = list(headers)
        self._lock = threading.Lock()
        self._clients: dict[int, fl.FlightClient] = {}
        self._closed = False

    def client(self) -> fl.FlightClient:
        """The client of this process."""
        client = self._clients.get(os.getpid())
        if client is not None:
            return client
        with self._lock:
            if self._closed:
                msg = f"the connection to {self.location} is closed"
                raise ClosedError(msg)
            if os.getpid() not in self._clients:
                self._clients[os.getpid()] = fl.FlightClient(
                    self.location,
                    # A size that no message of Flight exceeds: Arrow's own limit.
                    generic_options=[("grpc.max_receive_message_length", -1)],
                    **self._tls,
                )
            return self._clients[os.getpid()]

    def options(self, timeout: float | None = None) -> fl.FlightCallOptions:
        """Options of a call: its headers and, for short ones, its deadline."""
        return fl.FlightCallOptions(timeout=timeout, headers=self._headers)

    def call(self, action: str, request: Any, answer: type[T]) -> T:
        """Perform an action of the server.

        Raises:
            StreamError: The server's own error, or what became of the connection.
        """
        with translated():
            wanted = fl.Action(action, encode(request))
            results = list(self.client().do_action(wanted, self.options(self.timeout)))
        if len(results) != 1:
            msg = f"action {action!r} answered {len(results)} messages; 1 was expected"
            raise FormatRefused(msg)
        return decode(results[0].body, answer)

    def close(self) -> None:
        """Close the client of this process; twice is allowed."""
        with self._lock:
            self._closed = True
            client = self._clients.pop(os.getpid(), None)
        if client is not None:
            client.close()


@contextmanager
def translated() -> Iterator[None]:
    """Raise errors of Flight as errors of our tree."""
    try:
        yield
    except Exception as error:
        ours = from_status(error)
        if ours is None:
            raise
        raise ours from error
