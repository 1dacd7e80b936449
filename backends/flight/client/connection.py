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
from streamfactory.spi import ClosedError, FormatRefused, StreamError, Unsupported

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")

_used_by: Final[list[int]] = []
"""The process that used Flight first. gRPC's threads and locks do not survive a fork:
a child that uses it, even by a client of its own, hangs (seen with Arrow 26)."""


class Connection:
    """A Flight client that is opened on first use.

    Thread-safe.

    Args:
        location: Of the server: ``grpc://host:port`` or ``grpc+tls://host:port``.
        timeout: Seconds for one call without rows, and for an answer to a fetch.
        upload_timeout: Seconds for the rows of one attempt.
        tls: Arguments of `pyarrow.flight.FlightClient`.
        headers: Sent with each call; the values may be secrets.
    """

    def __init__(
        self,
        location: str,
        timeout: float,
        upload_timeout: float,
        tls: dict[str, Any] | None = None,
        headers: tuple[tuple[bytes, bytes], ...] = (),
    ) -> None:
        self.location = location
        self.timeout = timeout
        self.upload_timeout = upload_timeout
        self._tls = tls or {}
        self._headers = list(headers)
        self._lock = threading.Lock()
        self._client: fl.FlightClient | None = None
        self._closed = False
        self.watchdog = Watchdog()

    def client(self) -> fl.FlightClient:
        """The client of this process.

        Raises:
            Unsupported: misuse; a parent of this process used Flight before the fork.
        """
        with self._lock:
            if self._closed:
                msg = f"the connection to {self.location} is closed"
                raise ClosedError(msg)
            if self._client is None or _used_by != [os.getpid()]:
                _refuse_fork()
                self._client = fl.FlightClient(
                    self.location,
                    # No limit: batches have one of their own, on both sides.
                    generic_options=[("grpc.max_receive_message_length", -1)],
                    **self._tls,
                )
            return self._client

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


@contextmanager
def translated() -> Iterator[None]:
    """Raise errors of Flight as errors of our tree."""
    try:
        yield
    except StreamError:
        raise
    except Exception as error:
        ours = from_status(error)
        if ours is None:
            raise
        raise ours from error
