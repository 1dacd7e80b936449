"""One connection of a process to a server: calls, deadlines, translation of errors."""

from __future__ import annotations

import logging
import os
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow.flight as fl

from streamfactory.backends.flight.client.handshake import refuses_certificate
from streamfactory.backends.flight.client.watchdog import Watchdog
from streamfactory.backends.flight.options import TLS
from streamfactory.backends.flight.protocol.codec import decode, encode
from streamfactory.backends.flight.protocol.failures import (
    from_status,
    why_not_connected,
)
from streamfactory.spi import (
    ClosedError,
    ConnectionFailed,
    FormatRefused,
    NotAuthorized,
    StreamError,
    Unsupported,
)
from streamfactory.spi.backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

T = TypeVar("T")
Headers = list[tuple[bytes, bytes]]

log = logging.getLogger("streamfactory")

_BACKOFF: Final = Backoff(0.1, 1.0)
"""Between attempts to reach an unavailable server."""
_REFUSED: Final = ("certificate verify failed", "Peer name")
"""Causes that a certificate of the server is not accepted."""
_MISCONFIGURED: Final = ("handshake failed", "Socket closed")
"""Causes of TLS on one side only, and of a server that ends."""
_CLOSED: Final = "FlightClient is closed"
"""What a call raises after `close`."""

_used_by: Final[list[int]] = []
"""The process that used Flight first. gRPC's threads and locks do not survive a fork:
a child that uses it, even by a client of its own, hangs (seen with Arrow 26)."""


class Connection:
    """A Flight client that is opened on first use. Thread-safe.

    Of several servers the next one is used once one cannot be reached. While none can,
    as during a restart, calls try again with back-off until the timeout has passed or
    the connection is closed.

    Args:
        locations: Of the servers: ``grpc://host:port`` or ``grpc+tls://host:port``.
        timeout: Seconds for one call without rows, and for a response to a fetch.
        upload_timeout: Seconds for the rows of one attempt.
        credentials: Returns TLS arguments of `pyarrow.flight.FlightClient` and the
            headers of every call, which may hold secrets.
        certificate: The files of the client's certificate and of its key.
    """

    def __init__(
        self,
        locations: Sequence[str],
        timeout: float,
        upload_timeout: float,
        credentials: Callable[[], tuple[dict[str, Any], Headers]],
        certificate: tuple[str, str] | None = None,
    ) -> None:
        self.timeout = timeout
        self.upload_timeout = upload_timeout
        self.watchdog = Watchdog()
        self._locations = list(locations)
        self._credentials = credentials
        self._certificate = certificate
        self._headers: Headers = []
        self._lock = threading.Lock()
        self._client: fl.FlightClient | None = None
        self._closed = threading.Event()
        self._reported = False
        """Whether a warning about an unreachable server was logged."""

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
            self._check_open()
            _refuse_fork()
            if self._client is None:
                tls, self._headers = self._credentials()
                self._client = fl.FlightClient(
                    self.location,
                    # No limit: batches have one of their own, on both sides.
                    generic_options=[
                        ("grpc.max_receive_message_length", -1),
                        # Without it, gRPC itself connects again after up to 2 minutes.
                        ("grpc.max_reconnect_backoff_ms", int(_BACKOFF.longest * 1000)),
                    ],
                    **tls,
                )
            return self._client

    def reconnect(self) -> None:
        """Switch to the next server, if there is one."""
        with self._lock:
            if len(self._locations) > 1 and self._client is not None:
                self._locations.append(self._locations.pop(0))
                self._client = None  # calls in progress keep it

    def options(self, timeout: float | None = None) -> fl.FlightCallOptions:
        """Options of a call: its headers and, for short ones, its deadline."""
        return fl.FlightCallOptions(timeout=timeout, headers=self._headers)

    def call(self, action: str, request: Any, answer: type[T]) -> T:
        """Perform an action of the server.

        Raises:
            ConnectionFailed: transient; no server was reached within the timeout, or
                the connection broke during the call.
            NotAuthorized: permanent; one side does not accept the certificate of the
                other one.
            ClosedError: misuse; closed before, or while waiting for a server.
            StreamError: The server's own error.
        """
        wanted = fl.Action(action, encode(request))
        results = self._reaching(lambda: self._perform(wanted))
        if len(results) != 1:
            msg = f"action {action!r} answered {len(results)} messages; 1 was expected"
            raise FormatRefused(msg)
        return decode(results[0].body, answer)

    def _perform(self, action: fl.Action) -> list[fl.Result]:
        with self.translated():
            client = self.client()  # before the options: it reads the headers
            return list(client.do_action(action, self.options(self.timeout)))

    def _reaching(self, perform: Callable[[], T]) -> T:
        """Perform a call; retries while no server is reachable, as nothing was sent."""
        deadline = time.monotonic() + self.timeout
        failures = 0
        while True:
            try:
                result = perform()
            except ConnectionFailed as error:
                failures += 1
                left = deadline - time.monotonic()
                if left <= 0 or not _may_return(error):
                    error.attempts = failures
                    raise
                self._pause(error, failures, left)
            else:
                self._reported = False
                return result

    def _pause(self, error: ConnectionFailed, failures: int, left: float) -> None:
        rounds, others = divmod(failures, len(self._locations))
        if others:
            return  # the next server was not tried yet
        if not self._reported:
            self._reported = True
            log.warning("%s; trying again for up to %.0f s", error, left)
        if self._closed.wait(min(_BACKOFF.pause(rounds), left)):
            self._check_open()

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Raise errors of Flight as errors of our tree."""
        try:
            yield
        except StreamError:
            raise
        except Exception as error:
            if _CLOSED in str(error):  # by another thread, just before the call
                self._check_open()
            ours = self._not_connected(error) or from_status(error)
            if ours is None:
                raise
            if isinstance(ours, ConnectionFailed):
                self.reconnect()
            raise ours from error

    def close(self) -> None:
        """Close the client of this process; twice is allowed."""
        self._closed.set()
        with self._lock:
            client, self._client = self._client, None
        if client is not None and _used_by == [os.getpid()]:
            client.close()
            self.watchdog.close()

    def _check_open(self) -> None:
        if self._closed.is_set():
            msg = f"the connection to {self.location} is closed"
            raise ClosedError(msg)

    def _not_connected(self, error: Exception) -> StreamError | None:
        """The error of a server that cannot be reached, or ended during the call."""
        cause = why_not_connected(error)
        if cause is None:
            ours = from_status(error)
            plain = (
                isinstance(error, fl.FlightUnavailableError) and not error.extra_info
            )
            if not plain or not isinstance(ours, ConnectionFailed):
                return None
            msg = f"the call to {self.location} failed: {ours.what}"
            return ConnectionFailed(msg, remedy="try again once the server runs")
        if any(text in cause for text in _REFUSED):
            msg = f"the certificate of {self.location} is not accepted: {cause}"
            remedy = "correct stream.flight.tls.ca, or the host of "
            return NotAuthorized(msg, remedy=f"{remedy}stream.flight.location")
        if self.location.startswith(f"{TLS}:"):
            if refuses_certificate(self.location, cause, self._certificate):
                return self._refused()
            which = "stream.flight.location, or stream.flight.tls.*"
        else:
            which = f"stream.flight.location ({TLS}:// where the server has TLS)"
        remedy = f"start the server, or correct {which}"
        return ConnectionFailed(f"cannot reach {self.location}: {cause}", remedy=remedy)

    def _refused(self) -> NotAuthorized:
        """The error of a server that does not accept this client."""
        if self._certificate is None:
            msg = f"{self.location} requires a certificate of the client"
            remedy = "set stream.flight.tls.certificate and stream.flight.tls.key"
            return NotAuthorized(msg, remedy=remedy)
        msg = f"{self.location} does not accept the certificate of the client"
        remedy = "correct stream.flight.tls.certificate and stream.flight.tls.key, or "
        return NotAuthorized(msg, remedy=f"{remedy}tls.client.ca of the server")


def _may_return(error: ConnectionFailed) -> bool:
    """Whether a server was not reached that may be starting."""
    cause = None if error.__cause__ is None else why_not_connected(error.__cause__)
    return cause is not None and not any(text in cause for text in _MISCONFIGURED)


def _refuse_fork() -> None:
    if not _used_by:
        _used_by.append(os.getpid())
    if _used_by != [os.getpid()]:
        msg = (
            "Flight was used before this process was forked and would hang in the child"
        )
        remedy = "start the process with the multiprocessing method 'spawn'"
        raise Unsupported(msg, remedy=remedy)
