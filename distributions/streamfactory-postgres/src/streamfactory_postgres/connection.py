"""Connections of a factory: made from a configuration, never shared by forks."""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

import psycopg
from streamfactory import spi

if TYPE_CHECKING:
    from psycopg.abc import PQGen

Connection = psycopg.Connection[tuple[Any, ...]]
T = TypeVar("T")
"""What a request answers."""

_SESSION: Final = (
    "-c timezone=UTC -c datestyle=ISO -c intervalstyle=iso_8601 "
    "-c bytea_output=hex -c extra_float_digits=1 -c client_encoding=UTF8 "
    "-c default_transaction_isolation=read\\ committed"
)
"""Values come as text: these settings make it the same text in every database."""
_SSL_REQUEST: Final = struct.pack("!ii", 8, 80877103)
"""Each server answers it with one byte, before anybody logs in."""
_INHERITED: list[Any] = []
"""Connections of a parent process: closing one would end the parent's session."""


class _Answered(psycopg.Connection[tuple[Any, ...]]):
    """A connection whose requests end where its server does not answer any more.

    The system of a server that hangs acknowledges what it is sent, so no limit of TCP
    notices it. One that computes for long answers the first bytes of another client.
    """

    silence: float | None = None
    """Seconds without an answer after which the server is looked at."""

    def wait(
        self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None
    ) -> T:
        # Of psycopg 3.2 it takes no timeout.
        limits = {} if timeout is None else {"timeout": timeout}
        return super().wait(self._answered(gen), interval, **limits)

    def _answered(self, gen: PQGen[T]) -> PQGen[T]:
        heard, ready = time.monotonic(), None
        while True:
            try:
                wanted = next(gen) if ready is None else gen.send(ready)
            except StopIteration as ended:
                answer: T = ended.value
                return answer
            ready = yield wanted
            now = time.monotonic()
            if ready:
                heard = now
            elif self.silence is not None and now - heard > self.silence:
                if not _hears(self.info.host, self.info.port, self.silence / 4):
                    self.pgconn.finish()  # it cannot be told to roll back
                    msg = f"the server has not answered for {now - heard:.1f} s"
                    raise psycopg.OperationalError(msg)
                heard = now


def _hears(host: str, port: int, seconds: float) -> bool:
    try:
        with socket.create_connection((host, port), seconds) as other:
            other.sendall(_SSL_REQUEST)
            return bool(other.recv(1))
    except OSError:
        return False


def connect(
    config: spi.StreamConfig,
    *,
    autocommit: bool = True,
    wal_sender_timeout: int | None = None,
) -> Connection:
    """Open a connection to the server of a configuration.

    Args:
        config: Of the stream.
        autocommit: Whether each statement is a transaction.
        wal_sender_timeout: Seconds after which the server ends a replication that does
            not answer; None for a connection without replication.

    Raises:
        psycopg.OperationalError: The server is unreachable or refuses the login.
    """
    host, _, port = config["address"].rpartition(":")
    timeout: int = config["connection.timeout.millis"]
    made = _Answered.connect(
        host=host.strip("[]"),
        port=int(port),
        dbname=config["database"],
        user=config.get("user"),
        password=config["password"] if config.given("password") else None,
        sslmode=config["tls"],
        sslrootcert=config.get("tls.ca.file"),
        # libpq counts seconds, and takes 1 for 2.
        connect_timeout=max(1, timeout // 1000),
        tcp_user_timeout=timeout,
        # A server that vanishes while it computes is noticed after twice the timeout.
        keepalives_idle=max(1, timeout // 1000),
        keepalives_interval=max(1, timeout // 3000),
        keepalives_count=3,
        application_name=f"streamfactory {config.topic}"[:63],
        options=_SESSION
        if wal_sender_timeout is None
        else f"{_SESSION} -c lock_timeout={timeout} "
        f"-c wal_sender_timeout={wal_sender_timeout}s",
        replication=None if wal_sender_timeout is None else "database",
        autocommit=autocommit,
        # A prepared plan would outlive a table that is recreated.
        prepare_threshold=None,
    )
    made.silence = 0.8 * timeout / 1000
    return made


class Connections:
    """Idle connections of a factory, for short calls. Thread-safe.

    Args:
        config: The stream's configuration.
    """

    def __init__(self, config: spi.StreamConfig) -> None:
        self._config = config
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._process = os.getpid()
        self._closed = False
        self.has_state = False
        """Whether the schema of state was seen."""

    @contextmanager
    def borrow(self) -> Iterator[Connection]:
        """Use a connection in autocommit mode; after an error it is closed.

        A statement ends after ``connection.timeout.millis``.
        """
        connection = self.take()
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        self.give(connection)

    def take(self) -> Connection:
        """An idle connection, or a new one. The caller closes it or gives it back."""
        # A lock that a fork inherited may be held for ever: the child makes its own.
        if self._process != os.getpid():
            self._lock = threading.Lock()
        with self._lock:
            self._keep_inherited()
            self._closed = False
            connection = self._idle.pop() if self._idle else None
        if connection is not None:
            if not connection.closed:
                return connection
            connection.close()
        made = connect(self._config)
        try:
            timeout = self._config["connection.timeout.millis"]
            made.execute(f"SET statement_timeout = {int(timeout)}")
        except BaseException:
            made.close()
            raise
        return made

    def give(self, connection: Connection) -> None:
        """Keep a connection without a transaction for later calls."""
        with self._lock:
            if not self._closed and self._process == os.getpid():
                self._idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        """Close all idle connections; twice is allowed."""
        with self._lock:
            self._closed = True
            self._keep_inherited()
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _keep_inherited(self) -> None:
        if self._process != os.getpid():
            _INHERITED.append(self._idle)
            self._idle, self._process = [], os.getpid()
