"""A log in another process: the writing and administrating half of `Log` over Flight.

Reading has a session of its own (`subscription`), because one reader keeps one stream.
"""

from __future__ import annotations

import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, Final, NoReturn

import pyarrow as pa
import pyarrow.flight as fl

from streamfactory.arrowlog import (
    LaneBounds,
    Log,
    LogStage,
    LogStore,
    Retention,
    Staged,
)
from streamfactory.arrowlog.checks import check_schema
from streamfactory.backends.flight.protocol import messages as m
from streamfactory.backends.flight.protocol.codec import decode, encode
from streamfactory.backends.flight.protocol.rows import encode_rows
from streamfactory.backends.flight.protocol.schemas import decode_schema, encode_schema
from streamfactory.spi import (
    ConnectionFailed,
    FormatRefused,
    LastCommit,
    Position,
    Summary,
    Unsupported,
    Verification,
)

if TYPE_CHECKING:
    import threading
    from collections.abc import Collection, Mapping, MutableMapping, Sequence

    from streamfactory.arrowlog import LogSlice
    from streamfactory.backends.flight.client.connection import Connection


_FRESH_SECONDS: Final = 1.0
_SMALL_ROWS: Final = 8192
"""Batches with fewer rows are joined: each message has a fixed cost."""
_JOINED_ROWS: Final = 65_536
_JOINED_BYTES: Final = 8 << 20
"""Of what is joined: of one partition, and of all that wait."""
_INLINE_BYTES: Final = 32 << 10
# An acknowledgement is requested after so many bytes or batches. One may be outstanding
# while more is sent: at most twice as much, and a batch, is in flight.
_ACKNOWLEDGED_BYTES: Final = 8 << 20
_ACKNOWLEDGED: Final = 16
_OUTSTANDING: Final = 1


@dataclass(slots=True)
class _Pending:
    """Small batches of one partition that wait to be joined."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    size: int = 0
    """Bytes."""


class RemoteStage(LogStage):
    """Rows of one attempt on their way to the server.

    Small batches of a partition are joined. An attempt that stays small opens no call
    at all: its rows travel in the commit.
    """

    def __init__(self, log: RemoteLog, attempt: str) -> None:
        self._log = log
        self._attempt = attempt
        self._pending: dict[int, _Pending] = {}
        self._pending_bytes = 0
        self._upload: Upload | None = None

    def append(self, partition: int, rows: pa.RecordBatch) -> None:
        check_schema(rows, self._log.schema)
        if rows.num_rows >= _SMALL_ROWS:
            self._flush(partition)
            self._send(partition, rows)
            return
        pending = self._pending.setdefault(partition, _Pending())
        size = rows.nbytes  # once: it looks at every buffer
        pending.batches.append(rows)
        pending.rows += rows.num_rows
        pending.size += size
        self._pending_bytes += size
        if self._pending_bytes >= _JOINED_BYTES:
            self._flush_all()
        elif pending.rows >= _JOINED_ROWS:
            self._flush(partition)

    def seal(self) -> Staged:
        if self._upload is None and self._pending_bytes <= _INLINE_BYTES:
            inline = encode_rows(self._take_all(), self._log.schema)
            return Staged(self._attempt, ({"inline": inline},))
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
            self._send(partition, _joined(pending.batches))

    def _take_all(self) -> list[tuple[int, pa.RecordBatch]]:
        taken = [
            (number, _joined(one.batches)) for number, one in self._pending.items()
        ]
        self._pending.clear()
        return taken

    def _send(self, partition: int, rows: pa.RecordBatch) -> None:
        self._opened().write(partition, rows)

    def _opened(self) -> Upload:
        if self._upload is None:
            self._upload = Upload(self._log, self._attempt)
        return self._upload


class Upload:
    """The ``DoPut`` call of one attempt; its deadline is ``upload.timeout.millis``."""

    def __init__(self, log: RemoteLog, attempt: str) -> None:
        self._connection = connection = log.connection
        wanted = m.Stage(log.name, attempt, log.incarnation)
        descriptor = fl.FlightDescriptor.for_command(encode(wanted))
        with connection.translated():
            client = connection.client()
            self._writer, self._replies = client.do_put(
                descriptor, log.schema, connection.options(connection.upload_timeout)
            )
        self._attempt = attempt
        self._rows = 0
        self._batches = self._bytes = 0
        """Since an acknowledgement was requested."""
        self._requested: deque[int] = deque()
        """Rows so far at each acknowledgement that is outstanding."""
        self._open = True

    def write(self, partition: int, rows: pa.RecordBatch) -> None:
        """Send a batch; blocks while too much is not acknowledged.

        Raises:
            FormatRefused: permanent; the server acknowledged other rows.
        """
        self._rows += rows.num_rows
        self._batches += 1
        self._bytes += rows.nbytes
        full = self._batches >= _ACKNOWLEDGED or self._bytes >= _ACKNOWLEDGED_BYTES
        part = m.Part(partition, acknowledge=full)
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
            msg = f"the server ended attempt {self._attempt} before its rows"
            raise ConnectionFailed(msg)
        found, sent = decode(reply, m.Received), self._requested.popleft()
        if found.rows != sent:
            msg = (
                f"attempt {self._attempt}: the server acknowledged {found.rows} rows "
                f"of {sent}"
            )
            raise FormatRefused(msg)

    def finish(self) -> m.Sealed:
        """End the call and return the server's verdict."""
        with self._connection.translated():
            self._writer.done_writing()
            last: Any = None
            while (reply := self._replies.read()) is not None:
                last = reply
            self._open = False
            self._writer.close()
        if last is None:
            msg = f"the server ended attempt {self._attempt} without a verdict"
            raise ConnectionFailed(msg)
        return decode(last, m.Sealed)

    def abort(self) -> None:
        """Break the call off: the server discards what is not sealed."""
        if not self._open:
            return
        self._open = False
        with suppress(fl.FlightError, OSError, ValueError):
            self._writer.write_metadata(encode(m.Part(0, abort=True)))
            self._writer.close()


def _joined(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return parts[0] if len(parts) == 1 else pa.concat_batches(parts)


class RemoteLog(Log):
    """One topic on the server."""

    def __init__(
        self,
        connection: Connection,
        name: str,
        schema: pa.Schema,
        incarnation: str,
        *,
        memory_ms: int | None = None,
        retention: m.Retention | None = None,
    ) -> None:
        self.connection = connection
        self.name = name
        self.schema = schema
        self.incarnation = incarnation
        self._memory_ms = memory_ms
        self._retention = retention
        self._confirmed = time.monotonic()

    def bounds(self) -> Sequence[LaneBounds]:
        topic = self.connection.call("describe", m.Topic(self.name), m.TopicDescription)
        return [LaneBounds(p.id, p.earliest, p.latest) for p in topic.partitions]

    def read(
        self, partition: int, start: int, *, max_rows: int, max_bytes: int
    ) -> LogSlice:
        self._refuse()

    def wait(
        self,
        partition: int,
        offset: int,
        timeout: float,
        cancelled: threading.Event | None = None,
    ) -> bool:
        self._refuse()

    def wake(self) -> None:
        self._refuse()

    def offsets_at(
        self, timestamp_ms: int, partitions: Collection[int]
    ) -> Mapping[int, int | None]:
        wanted = m.OffsetsAt(timestamp_ms, {self.name: tuple(partitions)})
        found = self.connection.call("offsets-at", wanted, m.Offsets)
        return found.offsets[self.name]

    def stage(self, attempt: str) -> LogStage:
        return RemoteStage(self, attempt)

    def discard(self, staged: Staged) -> None:
        self._do("discard", m.Discard(self.name, _sealed(staged)))

    def commit(
        self,
        writer: str | None,
        epoch: int,
        staged: Sequence[Staged],
        *,
        instance: str = "",
        summary: Summary,
        source_position: Position | None = None,
        replace: bool = False,
        placed: MutableMapping[int, range] | None = None,
    ) -> LastCommit | None:
        wanted = m.Commit(
            self.name,
            writer,
            epoch,
            tuple(_sealed(one) for one in staged),
            instance,
            summary.rows,
            m.digests(summary.sums),
            None if source_position is None else source_position.to_json(),
            replace,
            self.incarnation,
            self._memory_ms,
            self._retention,
        )
        found = self._confirmed_by("commit", wanted)
        if placed is not None:
            placed.update({p.partition: range(p.start, p.end) for p in found.placed})
        return _held(found)

    def claim(self, writer: str, instance: str) -> LastCommit | None:
        wanted = m.Claim(self.name, writer, instance, self.incarnation)
        return _held(self._confirmed_by("claim", wanted))

    def last(self, writer: str) -> LastCommit | None:
        wanted = m.Last(self.name, writer, self.incarnation)
        return _held(self._confirmed_by("last", wanted))

    def owner(self, writer: str) -> str | None:
        self._refuse()

    def writers(self) -> Mapping[str, LastCommit]:
        self._refuse()

    def forget(self, idle: float, keep: str | None = None) -> None:
        """Done by the server, after each commit."""

    def grow(self, partitions: int) -> None:
        self._do("grow", m.Grow(self.name, partitions))

    def truncate(self, before: Mapping[int, int]) -> None:
        self._do("truncate", m.Truncate(self.name, dict(before)))

    def retain(self, retention: Retention, hold: Mapping[int, int]) -> None:
        wanted = m.Retain(self.name, plain_retention(retention), dict(hold))
        self._do("retain", wanted)

    def compact(self) -> None:
        self._do("compact", m.Topic(self.name))

    def verify(self) -> Verification:
        found = self.connection.call("verify", m.Topic(self.name), m.Verified)
        return Verification(found.rows, found.problems)

    def facts(self) -> Mapping[str, str | int]:
        return self.connection.call("facts", m.Topic(self.name), m.Facts).facts

    @property
    def is_fresh(self) -> bool:
        """Whether the server had this very topic a moment ago.

        Then it need not be opened again: calls name its incarnation, and the server
        refuses them where the topic was recreated meanwhile.
        """
        return time.monotonic() - self._confirmed < _FRESH_SECONDS

    def _confirmed_by(self, action: str, request: Any) -> m.Committed:
        """Perform an action that names the incarnation."""
        self._confirmed = -inf
        found = self.connection.call(action, request, m.Committed)
        self._confirmed = time.monotonic()
        return found

    def _do(self, action: str, request: Any) -> None:
        self.connection.call(action, request, m.Done)

    def _refuse(self) -> NoReturn:
        msg = "a topic on a server has no such call: a subscription reads it"
        raise Unsupported(msg)


class RemoteLogStore(LogStore):
    """The topics of a server."""

    def __init__(
        self,
        connection: Connection,
        *,
        memory_ms: int | None = None,
        retention: m.Retention | None = None,
    ) -> None:
        self.connection = connection
        self._memory_ms = memory_ms
        self._retention = retention

    def create(self, name: str, schema: pa.Schema, partitions: int = 1) -> Log:
        wanted = m.Create(name, encode_schema(schema), partitions)
        self.connection.call("create", wanted, m.Done)
        return self.open(name)

    def open(self, name: str) -> Log:
        topic = self.connection.call("describe", m.Topic(name), m.TopicDescription)
        return RemoteLog(
            self.connection,
            name,
            decode_schema(topic.schema or ""),
            topic.incarnation,
            memory_ms=self._memory_ms,
            retention=self._retention,
        )

    def delete(self, name: str) -> None:
        self.connection.call("delete", m.Topic(name), m.Done)

    def names(self) -> Sequence[str]:
        return self.connection.call("topics", m.Done(), m.Names).names


def plain_retention(retention: Retention) -> m.Retention:
    """As the protocol has it."""
    age = retention.age
    return m.Retention(
        None if age is None else int(age * 1000), retention.rows, retention.size
    )


def _sealed(staged: Staged) -> m.Sealed:
    return m.Sealed(staged.attempt, tuple(staged.files))


def _held(committed: m.Committed) -> LastCommit | None:
    held = committed.held
    if held is None:
        return None
    position = None if held.position is None else Position.from_json(held.position)
    summary = None if held.rows is None else Summary(held.rows, held.sums or {})
    return LastCommit(held.epoch, position, summary)
