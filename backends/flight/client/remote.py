"""A log in another process: `WritableLog` over Flight.

Reading has a separate session (`subscription`), because each reader keeps one stream.
"""

from __future__ import annotations

import time
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final

from streamfactory.arrowlog import (
    LogStage,
    PartitionBounds,
    Retention,
    Staged,
    WritableLog,
    WritableLogStore,
)
from streamfactory.backends.flight.client.uploading import RemoteStage, UploadTarget
from streamfactory.backends.flight.protocol import messages as m
from streamfactory.backends.flight.protocol.epochs import (
    committed_of,
    epoch_message,
    last_of,
    retention_message,
)
from streamfactory.backends.flight.protocol.rows import INLINE, inline_rows
from streamfactory.backends.flight.protocol.schemas import decode_schema, encode_schema
from streamfactory.spi import Verification

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    import pyarrow as pa

    from streamfactory.arrowlog import Committed, Epoch
    from streamfactory.backends.flight.client.committing import CommitSessions
    from streamfactory.backends.flight.client.connection import Connection
    from streamfactory.spi import LastCommit

_FRESH_SECONDS: Final = 1.0


class RemoteLog(WritableLog):
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
        sessions: CommitSessions | None = None,
    ) -> None:
        self.connection = connection
        self.name = name
        self.schema = schema
        self.incarnation = incarnation
        self._memory_ms = memory_ms
        self._retention = retention
        self._sessions = sessions
        self._confirmed = time.monotonic()

    def bounds(self) -> Sequence[PartitionBounds]:
        topic = self.connection.call("describe", m.Topic(self.name), m.TopicDescription)
        return topic.partitions

    def offsets_at(
        self, timestamp_ms: int, partitions: Collection[int]
    ) -> Mapping[int, int | None]:
        wanted = m.OffsetsAt(timestamp_ms, {self.name: tuple(partitions)})
        found = self.connection.call("offsets-at", wanted, m.Offsets)
        return found.offsets[self.name]

    def stage(self, attempt: str) -> LogStage:
        target = UploadTarget(self.connection, self.name, self.schema, self.incarnation)
        return RemoteStage(target, attempt)

    def discard(self, staged: Staged) -> None:
        if inline_rows(staged) is None:  # otherwise the server does not have the rows
            self._do("discard", m.Discard(self.name, _sealed(staged)))

    def commit(self, epoch: Epoch) -> Committed:
        writer = m.WriterInstance(
            topic=self.name,
            writer=epoch.writer,
            instance=epoch.instance,
            incarnation=self.incarnation,
            writer_memory_ms=self._memory_ms,
            retention=self._retention,
        )
        call = partial(self._commit, writer, epoch_message(epoch), epoch.staged)
        return committed_of(self._confirmed_by(call))

    def claim(self, writer: str, instance: str) -> LastCommit | None:
        wanted = m.Claim(self.name, writer, instance, self.incarnation)
        return last_of(self._confirmed_by(lambda: self._committed("claim", wanted)))

    def last(self, writer: str) -> LastCommit | None:
        wanted = m.Last(self.name, writer, self.incarnation)
        return last_of(self._confirmed_by(lambda: self._committed("last", wanted)))

    def forget(self, idle: float, keep: str | None = None) -> None:
        """Done by the server, after each commit."""

    def grow(self, partitions: int) -> None:
        self._do("grow", m.Grow(self.name, partitions))

    def truncate(self, before: Mapping[int, int]) -> None:
        self._do("truncate", m.Truncate(self.name, dict(before)))

    def retain(self, retention: Retention, hold: Mapping[int, int]) -> None:
        wanted = m.Retain(self.name, retention_message(retention), dict(hold))
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
        """Whether the server had this incarnation a moment ago.

        Then the topic need not be opened again: calls name the incarnation, and the
        server refuses them if the topic was recreated.
        """
        return time.monotonic() - self._confirmed < _FRESH_SECONDS

    def _confirmed_by(self, call: Callable[[], m.Committed]) -> m.Committed:
        """Make a call that names the incarnation."""
        self._confirmed = -inf
        found = call()
        self._confirmed = time.monotonic()
        return found

    def _commit(
        self, writer: m.WriterInstance, epoch: m.EpochHeader, staged: Sequence[Staged]
    ) -> m.Committed:
        """Commit over a session where that is possible, else by the action."""
        first = inline_rows(staged[0]) if len(staged) == 1 else None
        if first is not None and self._sessions is not None:
            found = self._sessions.commit(writer, epoch, staged[0].attempt, first)
            if found is not None:
                return found
        sealed = tuple(_sealed(one) for one in staged)
        commit = m.Commit(**vars(writer), **vars(epoch), staged=sealed)
        return self._committed("commit", commit)

    def _committed(self, action: str, request: Any) -> m.Committed:
        return self.connection.call(action, request, m.Committed)

    def _do(self, action: str, request: Any) -> None:
        self.connection.call(action, request, m.Done)


class RemoteLogStore(WritableLogStore):
    """The topics of a server."""

    def __init__(
        self,
        connection: Connection,
        *,
        memory_ms: int | None = None,
        retention: m.Retention | None = None,
        sessions: CommitSessions | None = None,
    ) -> None:
        self.connection = connection
        self._memory_ms = memory_ms
        self._retention = retention
        self._sessions = sessions

    def create(self, name: str, schema: pa.Schema, partitions: int = 1) -> RemoteLog:
        wanted = m.Create(name, encode_schema(schema), partitions)
        self.connection.call("create", wanted, m.Done)
        return self.open(name)

    def open(self, name: str) -> RemoteLog:
        topic = self.connection.call("describe", m.Topic(name), m.TopicDescription)
        return RemoteLog(
            self.connection,
            name,
            decode_schema(topic.schema or ""),
            topic.incarnation,
            memory_ms=self._memory_ms,
            retention=self._retention,
            sessions=self._sessions,
        )

    def delete(self, name: str) -> None:
        self.connection.call("delete", m.Topic(name), m.Done)

    def names(self) -> Sequence[str]:
        return self.connection.call("topics", m.Done(), m.Names).names


def _sealed(staged: Staged) -> m.Sealed:
    rows = inline_rows(staged)
    if rows is None:
        return m.Sealed(staged.attempt, tuple(staged.files))
    return m.Sealed(staged.attempt, ({INLINE: rows.encode()},))
