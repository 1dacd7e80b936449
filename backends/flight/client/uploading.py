"""Upload of an attempt's rows: concatenated, uploaded or sent with the commit."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.flight as fl

from streamfactory.arrowlog import LogStage, Staged
from streamfactory.arrowlog.checks import check_schema
from streamfactory.backends.flight.protocol import messages as m
from streamfactory.backends.flight.protocol.codec import decode, encode
from streamfactory.backends.flight.protocol.rows import INLINE, InlineRows
from streamfactory.spi import ConnectionFailed, FormatRefused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfactory.backends.flight.client.connection import Connection

_SMALL_ROWS: Final = 8192
"""Batches with fewer rows are concatenated: each message has a fixed cost."""
_JOINED_ROWS: Final = 65_536
_JOINED_BYTES: Final = 8 << 20
"""Limits of concatenated rows: of one partition, and of all pending ones."""
_INLINE_BYTES: Final = 32 << 10
# An acknowledgement is requested after so many bytes or batches. One may be outstanding
# while more is sent: at most twice as much, and a batch, is in flight.
_ACKNOWLEDGED_BYTES: Final = 8 << 20
_ACKNOWLEDGED: Final = 16
_OUTSTANDING: Final = 1


@dataclass(slots=True)
class _Pending:
    """Small batches of one partition that are to be concatenated."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    size: int = 0
    """Approximate bytes."""
    _row_bytes: float = 0.0
    _measured: int = -_SMALL_ROWS
    """Rows at the last measurement."""

    def add(self, rows: pa.RecordBatch) -> int:
        """Add a batch; returns its bytes, estimated from a recent batch.

        Measuring each batch costs as much as copying a thousand rows.
        """
        if self.rows - self._measured >= _SMALL_ROWS and rows.num_rows:
            self._row_bytes = rows.nbytes / rows.num_rows
            self._measured = self.rows
        size = int(self._row_bytes * rows.num_rows)
        self.batches.append(rows)
        self.rows += rows.num_rows
        self.size += size
        return size


@dataclass(frozen=True, slots=True)
class UploadTarget:
    """The topic on a server to which rows are uploaded."""

    connection: Connection
    name: str
    schema: pa.Schema
    incarnation: str


class RemoteStage(LogStage):
    """Rows of one attempt, uploaded to the server.

    Small batches of a partition are concatenated. An attempt that stays small opens no
    call: its rows are sent with the commit.
    """

    def __init__(self, target: UploadTarget, attempt: str) -> None:
        self._target = target
        self._attempt = attempt
        self._pending: dict[int, _Pending] = {}
        self._pending_bytes = 0
        self._upload: Upload | None = None

    def append(self, partition: int, rows: pa.RecordBatch) -> None:
        check_schema(rows, self._target.schema)
        if rows.num_rows >= _SMALL_ROWS:
            self._flush(partition)
            self._send(partition, rows)
            return
        pending = self._pending.setdefault(partition, _Pending())
        self._pending_bytes += pending.add(rows)
        if self._pending_bytes >= _JOINED_BYTES:
            self._flush_all()
        elif pending.rows >= _JOINED_ROWS:
            self._flush(partition)

    def seal(self, *, carried: bool = False) -> Staged:
        if self._upload is None and self._pending_bytes <= _INLINE_BYTES:
            taken = self._take_all()
            if sum(rows.nbytes for _, rows in taken) <= _INLINE_BYTES:
                inline = InlineRows(tuple(taken), self._target.schema)
                return Staged(self._attempt, ({INLINE: inline},))
            for partition, rows in taken:
                self._send_joined(partition, rows)
        self._flush_all()
        sealed = self._opened().finish()
        return Staged(sealed.attempt, sealed.files)

    def discard(self) -> None:
        self._pending.clear()
        if self._upload is not None:
            self._upload.abort()

    def _flush_all(self) -> None:
        for partition in list(self._pending):
            self._flush(partition)

    def _flush(self, partition: int) -> None:
        if pending := self._pending.pop(partition, None):
            self._pending_bytes -= pending.size
            self._send_joined(partition, _joined(pending.batches))

    def _take_all(self) -> list[tuple[int, pa.RecordBatch]]:
        taken = [
            (number, _joined(one.batches)) for number, one in self._pending.items()
        ]
        self._pending.clear()
        return taken

    def _send_joined(self, partition: int, rows: pa.RecordBatch) -> None:
        """Send rows of estimated size, in pieces if they are too large."""
        pieces = min(-(-rows.nbytes // (2 * _JOINED_BYTES)), rows.num_rows)
        step = -(-rows.num_rows // max(1, pieces))
        for start in range(0, rows.num_rows, step or 1):
            self._send(partition, rows.slice(start, step))

    def _send(self, partition: int, rows: pa.RecordBatch) -> None:
        self._opened().write(partition, rows)

    def _opened(self) -> Upload:
        if self._upload is None:
            self._upload = Upload(self._target, self._attempt)
        return self._upload


class Upload:
    """The ``DoPut`` call of one attempt; its deadline is ``upload.timeout.millis``."""

    def __init__(self, target: UploadTarget, attempt: str) -> None:
        self._connection = connection = target.connection
        wanted = m.Stage(target.name, attempt, target.incarnation)
        descriptor = fl.FlightDescriptor.for_command(encode(wanted))
        with connection.translated():
            client = connection.client()
            self._writer, self._replies = client.do_put(
                descriptor, target.schema, connection.options(connection.upload_timeout)
            )
        self._attempt = attempt
        self._rows = 0
        self._batches = self._bytes = 0
        """Since the last request for an acknowledgement."""
        self._requested: deque[int] = deque()
        """Rows so far at each acknowledgement that is outstanding."""
        self._open = True

    def write(self, partition: int, rows: pa.RecordBatch) -> None:
        """Send a batch; blocks while too many bytes are unacknowledged.

        Raises:
            FormatRefused: permanent; the server acknowledged other rows.
        """
        self._rows += rows.num_rows
        self._batches += 1
        self._bytes += rows.nbytes
        full = self._batches >= _ACKNOWLEDGED or self._bytes >= _ACKNOWLEDGED_BYTES
        part = m.Part(partition, acknowledge=full, ahead=_OUTSTANDING)
        with self._connection.translated():
            self._writer.write_with_metadata(rows, encode(part))
            if full:
                self._batches = self._bytes = 0
                self._requested.append(self._rows)
                if len(self._requested) > _OUTSTANDING:
                    self._await_acknowledgement()

    def _await_acknowledgement(self) -> None:
        reply = self._replies.read()
        if reply is None:
            self.finish()  # raises why the server has ended the call
            msg = (
                f"the server ended the upload of attempt {self._attempt} before its "
                "last row"
            )
            raise ConnectionFailed(msg)
        found, sent = decode(reply, m.Received), self._requested.popleft()
        if found.rows != sent:
            msg = (
                f"attempt {self._attempt}: the server acknowledged {found.rows} rows "
                f"of {sent}"
            )
            raise FormatRefused(msg)

    def finish(self) -> m.Sealed:
        """End the call and return the server's result."""
        with self._connection.translated():
            self._writer.done_writing()
            last: Any = None
            while (reply := self._replies.read()) is not None:
                last = reply
            self._open = False
            self._writer.close()
        if last is None:
            msg = (
                f"the server ended the upload of attempt {self._attempt} without a "
                "result"
            )
            raise ConnectionFailed(msg)
        return decode(last, m.Sealed)

    def abort(self) -> None:
        """Abort the call: the server discards rows that are not sealed."""
        if not self._open:
            return
        self._open = False
        with suppress(fl.FlightError, OSError, ValueError):
            self._writer.write_metadata(encode(m.Part(0, abort=True)))
            self._writer.close()


def _joined(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return parts[0] if len(parts) == 1 else pa.concat_batches(parts)
