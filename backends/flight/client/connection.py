"""One connection of a process to a server: calls, deadlines, translation of errors."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow.flight as fl

from streamfactory.backends.flight.client.watchdog import Watchdog
from streamfactory.backends.flight.protocol.codec import decode, encode
from streamfactory.backends.flight.protocol.failures import from_status
from streamfactory.spi import (
    ClosedError,
    ConnectionFailed,
    FormatRefused,
    StreamError,
    Unsupported,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

T = TypeVar("T")
Headers = list[tuple[bytes, bytes]]

_used_by: Final[list[int]] = []
"""The process that used Flight first. gRPC's threads and locks do not survive a fork:
a child that uses it, even by a client of its own, hangs (seen with Arrow 26)."""


class Connection:
    """A Flight client that is opened on first use. Thread-safe.

    Of several servers the next one is used once one cannot be reached.

    Args:
        locations: Of the servers: ``grpc://host:port`` or ``grpc+tls://host:port``.
        timeout: Seconds for one call without rows, and for an answer to a fetch.
        upload_timeout: Seconds for the rows of one attempt.
        credentials: Returns TLS arguments of `pyarrow.flight.FlightClient` and the
            headers of every call, which may hold secrets.
    """

    def __init__(
        self,
        locations: Sequence[str],
        timeout: float,
        upload_timeout: float,
        credentials: Callable[[], tuple[dict[str, Any], Headers]],
    ) -> None:
        self.timeout = timeout
        self.upload_timeout = upload_timeout
        self.watchdog = Watchdog()
        self._locations = list(locations)
        self._credentials = credentials
        self._headers: Headers = []
        self._lock = threading.Lock()
        self._client: fl.FlightClient | None = None
        self._closed = False

    @property
    def location(self) -> str:
        """The server in use."""
        return self._locations[0]

    def client(self) -> fl.FlightClient:
        """The client of this process.

        Raises:
            Unsupported: misuse; a parent of this process used Flight before the fork.
            ClosedError: misuse.
        """
        with self._lock:
            if self._closed:
                msg = f"the connection to {self.location} is closed"
                raise ClosedError(msg)
            _refuse_fork()
            if self._client is None:
                tls, self._headers = self._credentials()
                self._client = fl.FlightClient(
                    self.location,
                    # No limit: batches have one of their own, on both sides.
                    generic_options=[("grpc.max_receive_message_length", -1)],
                    **tls,
                )
            return self._client

    def reconnect(self) -> None:
        """Use the next server from here on, where there is one."""
        with self._lock:
            if len(self._locations) > 1 and self._client is not None:
                self._locations.append(self._locations.pop(0))
                self._client = None  # calls under way keep it

    def options(self, timeout: float | None = None) -> fl.FlightCallOptions:
        """Options of a call: its headers and, for short ones, its deadline."""
        return fl.FlightCallOptions(timeout=timeout, headers=self._headers)

    def call(self, action: str, request: Any, answer: type[T]) -> T:
        """Perform an action of the server.

        Raises:
            StreamError: The server's own error, or what became of the connection.
        """
        with self.translated():
            wanted = fl.Action(action, encode(request))
            client = self.client()  # before the options: it reads the headers
            results = list(client.do_action(wanted, self.options(self.timeout)))
        if len(results) != 1:
            msg = f"action {action!r} answered {len(results)} messages; 1 was expected"
            raise FormatRefused(msg)
        return decode(results[0].body, answer)

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Raise errors of Flight as errors of our tree."""
        try:
            yield
        except StreamError:
            raise
        except Exception as error:
            ours = from_status(error)
            if ours is None:
                raise
            if isinstance(ours, ConnectionFailed):
                self.reconnect()
            raise ours from error

    def close(self) -> None:
        """Close the client of this process; twice is allowed."""
        with self._lock:
            self._closed = True
            client, self._client = self._client, None
        if client is not None and _used_by == [os.getpid()]:
            client.close()
            self.watchdog.close()


def _refuse_fork() -> None:
    if not _used_by:
        _used_by.append(os.getpid())
    if _used_by != [os.getpid()]:
        msg = "Flight was used before this process was forked, and hangs in the child"
        remedy = "start the process with the multiprocessing method 'spawn'"
        raise Unsupported(msg, remedy=remedy)
