"""A replication connection that receives the changes behind a position."""

from __future__ import annotations

import select
import time
import uuid
from collections.abc import Sequence
from struct import Struct
from typing import Final

import psycopg
from psycopg import pq, sql
from psycopg.errors import error_from_result
from streamfactory import spi

from streamfactory_postgres.changes.numbering import text_of
from streamfactory_postgres.connection import connect

_DATA: Final = 25
"""Bytes before a message of pgoutput: kind, two positions, time."""
_KEEPALIVE: Final = Struct(">cQqB")
_STATUS: Final = Struct(">cQQQqB")
IDLE: Final = 5.0
"""Seconds after which a session is not continued: the server may have ended it."""
_TIMEOUT: Final = 15
"""Seconds after which the server ends a session that does not answer. A server that is
stopped waits as long for readers that do not fetch."""


class Session:
    """Receives changes in the order of commits. One thread.

    It reads a temporary copy of the slot: any number of sessions read at once, reading
    advances nothing, and the server drops the copy with the connection.

    Args:
        config: Of the stream.
        slot: The slot that is copied, and the publication of the same name.
        start: Position in the WAL: transactions committed before it are left out.
    """

    def __init__(self, config: spi.StreamConfig, slot: str, start: int) -> None:
        self.reached = start
        """All transactions that were committed before it have been received."""
        self._used = time.monotonic()
        self._connection = connect(config, wal_sender_timeout=_TIMEOUT)
        self._server = self._connection.pgconn
        try:
            self._begin(slot, start)
        except BaseException:
            self._connection.close()
            raise

    @property
    def is_stale(self) -> bool:
        """Whether the server may have ended it by now."""
        return time.monotonic() - self._used > IDLE

    def receive(self) -> bytes | None:
        """The next message of pgoutput; None if none has arrived. Does not block.

        Raises:
            psycopg.Error: The server ended the session.
        """
        self._used = time.monotonic()
        while True:
            size, data = self._server.get_copy_data(1)
            if size == 0:
                return None
            if size < 0:
                raise self._ended()
            message = bytes(data)
            if message[:1] == b"w":
                return message[_DATA:]
            _, end, _, wants_reply = _KEEPALIVE.unpack_from(message)
            self.reached = max(self.reached, end)
            if wants_reply:
                self._report(wants_reply=False)

    def wait(self, seconds: float, others: Sequence[int] = ()) -> bool:
        """Wait until something arrives here, or at another descriptor.

        Returns:
            Whether something may have arrived.
        """
        own = self._connection.fileno()
        found, _, _ = select.select([own, *others], [], [], max(0.0, seconds))
        if own in found:
            self._server.consume_input()
        return bool(found)

    def request_position(self) -> None:
        """Make the server report how far it is: `reached` rises when that arrives."""
        self._report(wants_reply=True)

    def deliver(self, end: int) -> None:
        """A transaction that was committed up to here was received."""
        self.reached = max(self.reached, end)

    def close(self) -> None:
        """End it; the server drops the copy."""
        self._connection.close()

    def _begin(self, slot: str, start: int) -> None:
        copy = f"streamfactory_{uuid.uuid4().hex}"
        self._connection.execute(
            sql.SQL("SELECT pg_copy_logical_replication_slot({}, {}, true)").format(
                sql.Literal(slot), sql.Literal(copy)
            )
        )
        command = (
            f"START_REPLICATION SLOT {copy} LOGICAL {text_of(start)} "
            f"(proto_version '1', publication_names '\"{slot}\"')"
        )
        result = self._server.exec_(command.encode())
        if result.status != pq.ExecStatus.COPY_BOTH:
            raise error_from_result(result)

    def _report(self, *, wants_reply: bool) -> None:
        # The copy is this session's alone: it may let all go that was sent. A server
        # that is stopped waits until its readers have reported that.
        at = self.reached
        status = _STATUS.pack(b"r", at, at, at, 0, wants_reply)
        self._server.put_copy_data(status)
        self._server.flush()

    def _ended(self) -> psycopg.Error:
        result = self._server.get_result()
        if result is not None and result.error_message:
            return error_from_result(result)
        return psycopg.OperationalError("the server ended the replication")
