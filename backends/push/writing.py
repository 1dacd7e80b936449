"""The writing half of ``push``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, ClassVar, Final

from streamfactory.arrowlog.messages import stored_messages
from streamfactory.push import StopPushing, named
from streamfactory.spi import (
    Claims,
    ClosedError,
    CommitMessage,
    End,
    Finished,
    IncarnationChanged,
    LastCommit,
    Outgoing,
    Position,
    ProducerFactory,
    StreamCommitter,
    StreamTimeout,
    StreamWriter,
    WriteContext,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

_SLICE: Final = 0.1
"""Seconds until a write that waits sees that it was woken."""
_ABORTED: Final = "an epoch was aborted after some of its rows were pushed"


class PushWriter(StreamWriter):
    """Holds the rows of one attempt until its epoch commits.

    Once attempts that are not decided hold more than the capacity of a lane, rows are
    pushed at once. That cannot be taken back: an abort fails the table then.
    """

    def __init__(self, table: named.NamedTable, attempt: str, timeout: float) -> None:
        self._table = table
        self._attempt = attempt
        self._timeout = timeout
        self._has_pushed = False
        self._woken = False

    def write(self, outgoing: Outgoing) -> None:
        given = outgoing.rows
        if self._table.has_messages:
            given = stored_messages(outgoing)
        for rows in self._table.fitter.batches(given):
            self._table.hold(self._attempt, outgoing.partition, rows)
        if self._table.held_bytes > self._table.channel.capacity_bytes:
            held = self._table.take(self._attempt)
            self._has_pushed |= _push(
                self._table, held, self._timeout, lambda: self._woken
            )

    def wake(self) -> None:
        self._woken = True

    def commit(self) -> Any:
        return {
            "attempt": self._attempt,
            "has_pushed": self._has_pushed,
            "incarnation": self._table.incarnation,
        }

    def abort(self) -> None:
        """Forget what is held; fail the table where rows were pushed."""
        self._table.take(self._attempt)
        if self._has_pushed:
            _fail(self._table, _ABORTED)

    @property
    def end(self) -> End | None:
        return self._table.channel.end


class PushCommitter(StreamCommitter):
    """Pushes what the attempts of an epoch hold. It remembers no epochs."""

    def __init__(self, table: named.NamedTable, timeout: float) -> None:
        self._table = table
        self._timeout = timeout

    def commit(
        self,
        epoch: int,
        messages: Sequence[CommitMessage],
        source_position: Position | None = None,
    ) -> LastCommit | None:
        for message in messages:
            self._check_table(message.payload["incarnation"])
        for message in messages:
            held = self._table.take(message.payload["attempt"])
            _push(self._table, held, self._timeout, bool)
        return None

    def abort(self, epoch: int, messages: Sequence[CommitMessage]) -> None:
        for message in messages:
            self._table.take(message.payload["attempt"])
        if any(message.payload["has_pushed"] for message in messages):
            _fail(self._table, _ABORTED)

    def _check_table(self, written: str) -> None:
        """Refuse to commit where another table got the name after the rows."""
        current = self._table.incarnation
        if written != current:
            msg = "another push table got the name after the rows were written"
            remedy = "write the rows again"
            raise IncarnationChanged(
                msg, expected=written, found=current, remedy=remedy
            )


class PushProducerFactory(ProducerFactory):
    """Pushes into the table of one name. It claims nothing."""

    CLAIMS: ClassVar = Claims()

    def create_writer(self, context: WriteContext) -> StreamWriter:
        table = named.find(self.config.topic)
        return PushWriter(table, context.attempt, self._timeout)

    def create_committer(self, writer_id: str | None) -> StreamCommitter:
        return PushCommitter(named.find(self.config.topic), self._timeout)

    def fetch_partition_count(self, topic: str) -> int:
        return len(named.find(topic).channel.lanes)

    def fetch_schema(self, topic: str) -> pa.Schema | None:
        return named.find(topic).stream_schema

    def end_stream(self, end: End) -> End | None:
        table = named.find(self.config.topic)
        if isinstance(end, Finished):
            table.channel.close()
        else:
            _fail(table, str(end))
        return None

    @property
    def _timeout(self) -> float:
        timeout: int = self.config["write.timeout.millis"]
        return timeout / 1000


def _push(
    table: named.NamedTable,
    held: Sequence[tuple[int, pa.RecordBatch]],
    timeout: float,
    is_woken: Callable[[], bool],
) -> bool:
    """Queue rows; False where there were none, or the reader needs no more."""
    deadline = time.monotonic() + timeout
    for partition, rows in held:
        while True:
            left = max(0.0, deadline - time.monotonic())
            try:
                table.channel.put(partition, [rows], min(left, _SLICE))
                break
            except StopPushing:
                return False  # see `PushWriter.end`
            except StreamTimeout:
                if left == 0:
                    msg = f"the reader has not made room within {timeout:g} s"
                    raise StreamTimeout(msg) from None
            if is_woken():
                msg = "the writer was closed while it waited for the reader"
                raise ClosedError(msg)
    return bool(held)


def _fail(table: named.NamedTable, cause: str) -> None:
    if not table.channel.is_closed:
        table.channel.fail(RuntimeError(cause))
