"""Commits of small epochs over one long call: faster than an action for each."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

import pyarrow as pa
import pyarrow.flight as fl

from streamfactory.backends.flight.protocol import messages as m
from streamfactory.backends.flight.protocol.codec import decode, encode
from streamfactory.spi import ConnectionFailed

if TYPE_CHECKING:
    from streamfactory.backends.flight.client.connection import Connection
    from streamfactory.backends.flight.protocol.rows import InlineRows

_IDLE_SECONDS: Final = 1.0
"""Time within which a session is reused. Later, the server may have restarted."""


class _Open(NamedTuple):
    """A call that is open for one writer."""

    writer: fl.FlightStreamWriter
    reader: fl.FlightStreamReader


@final
class CommitSessions:
    """The open call of the writer that committed last. Thread-safe.

    A writer that commits twice within a second gets one. Commits that a session does
    not support, or that fail, are repeated by the action ``commit``. With a writer and
    an epoch it is safe to repeat a commit whose response was lost.

    Args:
        connection: Connection to the server; closed by the caller.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._wanted: m.CommitSession | None = None
        """The writer that committed last."""
        self._used = 0.0
        self._open: _Open | None = None

    def commit(
        self,
        writer: m.WriterInstance,
        epoch: m.EpochHeader,
        attempt: str,
        rows: InlineRows,
    ) -> m.Committed | None:
        """Commit an epoch; returns None if it has to be done by the action.

        Args:
            writer: The writer and its topic.
            epoch: What is stored with the rows.
            attempt: Attempt of the rows.
            rows: All rows of the epoch.

        Raises:
            StreamError: The server's own error; the epoch is not committed.
            StreamTimeout: transient; the server has not responded in time.
        """
        if writer.writer is None or not self._lock.acquire(blocking=False):
            return None  # not repeatable, or another thread commits
        try:
            wanted = m.CommitSession(**vars(writer))
            now = time.monotonic()
            recent = self._wanted == wanted and now - self._used < _IDLE_SECONDS
            if not recent:
                self._end()
                self._wanted, self._used = wanted, now
                return None
            try:
                parts = [
                    m.PartRows(partition, part.num_rows)
                    for partition, part in rows.parts
                ]
                request = m.CommitRows(
                    **vars(epoch), attempt=attempt, parts=tuple(parts)
                )
                found = self._commit(wanted, request, rows)
            except BaseException as error:
                self._end()
                if isinstance(error, ConnectionFailed):
                    return None
                raise
            self._used = time.monotonic()
            return found
        finally:
            self._lock.release()

    def close(self) -> None:
        """End the call; never raises. A commit in progress is left to the action."""
        opened = self._open
        if opened is not None:
            with suppress(fl.FlightError, OSError, ValueError):
                opened.reader.cancel()
        with self._lock:
            self._end()
            self._wanted = None

    def _commit(
        self, wanted: m.CommitSession, request: m.CommitRows, rows: InlineRows
    ) -> m.Committed:
        connection = self._connection
        with connection.translated():
            if self._open is None:
                self._open = self._begin(wanted, rows.schema)
            writer, reader = self._open
            with connection.watchdog.limit(connection.timeout, reader.cancel):
                metadata = encode(request)
                if rows.parts:
                    writer.write_with_metadata(_whole(rows), metadata)
                else:
                    writer.write_metadata(metadata)
                answer: Any = reader.read_chunk()
            return decode(answer.app_metadata or b"", m.Committed)

    def _begin(self, wanted: m.CommitSession, schema: pa.Schema) -> _Open:
        descriptor = fl.FlightDescriptor.for_command(encode(wanted))
        client = self._connection.client()
        writer, reader = client.do_exchange(descriptor, self._connection.options())
        writer.begin(schema)
        return _Open(writer, reader)

    def _end(self) -> None:
        opened, self._open = self._open, None
        if opened is not None:
            with suppress(fl.FlightError, OSError, ValueError):
                opened.reader.cancel()
                opened.writer.close()


def _whole(rows: InlineRows) -> pa.RecordBatch:
    """All parts as one batch."""
    batches = [batch for _, batch in rows.parts]
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
