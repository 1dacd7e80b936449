"""Rows that writers upload: staged, then committed or discarded."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from streamfactory.arrowlog import LogStage, Staged
from streamfactory.backends.flight.protocol import messages as m
from streamfactory.backends.flight.protocol.rows import decode_rows
from streamfactory.backends.flight.server.logs import (
    commit_message,
    open_topic,
    retention_of,
)
from streamfactory.spi import FormatRefused, Position, Summary

if TYPE_CHECKING:
    import pyarrow as pa

    from streamfactory.arrowlog import Log, LogStore
    from streamfactory.backends.flight.server.metrics import Meters


@final
class Uploads:
    """Stages and commits the rows of writers. Thread-safe.

    Args:
        store: Holds the topics.
        meters: Records what is received and committed.
    """

    def __init__(self, store: LogStore, meters: Meters) -> None:
        self._store = store
        self._meters = meters

    def stage(self, log: Log, attempt: str) -> LogStage:
        """Begin an attempt."""
        return _Upload(log.stage(attempt), log.name, self._meters)

    def append(self, log: Log, sealed: Staged, rows: int) -> tuple[m.Placed, ...]:
        """Commit the rows of a plain put: one writer with one epoch.

        Returns:
            The offsets of the rows, as messages have them.
        """
        placed: dict[int, range] = {}
        log.commit(None, 0, [sealed], summary=Summary(rows), placed=placed)
        self._meters.committed(log.name, repeated=False)
        return m.placed(placed)

    def commit(self, request: m.Commit) -> m.Committed:
        """Append sealed attempts in one step."""
        log = open_topic(self._store, request.topic, request.incarnation)
        position = request.position
        placed: dict[int, range] = {}
        held = log.commit(
            request.writer,
            request.epoch,
            [self._staged(log, one) for one in request.staged],
            instance=request.instance,
            summary=Summary(request.rows, request.sums or {}),
            source_position=None if position is None else Position.from_json(position),
            replace=request.replace,
            placed=placed,
        )
        self._meters.committed(log.name, repeated=held is not None)
        if request.writer_memory_ms is not None:
            log.forget(request.writer_memory_ms / 1000, keep=request.writer)
        if request.retention is not None:
            log.retain(retention_of(request.retention), {})
        return m.Committed(commit_message(held), m.placed(placed))

    def discard(self, request: m.Discard) -> m.Done:
        """Remove what an attempt sealed."""
        if _inline(request.staged) is not None:
            return m.Done()  # nothing is staged before the commit
        staged = Staged(request.staged.attempt, request.staged.files)
        self._store.open(request.topic).discard(staged)
        return m.Done()

    def _staged(self, log: Log, sealed: m.Sealed) -> Staged:
        """What an attempt sealed; rows that came with the commit are staged now."""
        inline = _inline(sealed)
        if inline is None:
            return Staged(sealed.attempt, sealed.files)
        stage = self.stage(log, sealed.attempt)
        try:
            for partition, rows in decode_rows(inline, log.schema):
                stage.append(partition, rows)
            return stage.seal()
        except BaseException:
            stage.discard()
            raise


def _inline(sealed: m.Sealed) -> str | None:
    """The rows that came with the message; None where they were uploaded before."""
    first = sealed.files[0] if len(sealed.files) == 1 else None
    if not isinstance(first, dict) or "inline" not in first:
        return None
    if not isinstance(first["inline"], str):
        msg = "the member 'inline' of a file is not text"
        raise FormatRefused(msg)
    return first["inline"]


@final
class _Upload(LogStage):
    """Records what is staged."""

    def __init__(self, stage: LogStage, topic: str, meters: Meters) -> None:
        self._stage = stage
        self._topic = topic
        self._meters = meters

    def append(self, partition: int, rows: pa.RecordBatch) -> None:
        self._stage.append(partition, rows)
        self._meters.received(self._topic, rows.num_rows, rows.nbytes)

    def seal(self) -> Staged:
        return self._stage.seal()

    def discard(self) -> None:
        self._stage.discard()
