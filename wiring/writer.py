"""The final `Writer`: the rows of one attempt, routed, checked and counted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, final

import pyarrow as pa

from streamfactory.spi import (
    ClosedError,
    CommitMessage,
    MessageEncoder,
    Outgoing,
    StreamError,
    StreamWriter,
    Summary,
    WriteContext,
)
from streamfactory.wiring.conform import conform
from streamfactory.wiring.guard import log
from streamfactory.wiring.routing import Router, unpack
from streamfactory.wiring.summary import summarize

if TYPE_CHECKING:
    from streamfactory.spi import End
    from streamfactory.wiring.sink import Sink


@dataclass(slots=True)
class WriteCounters:
    """What a writer has done so far."""

    rows: int = 0
    """Rows taken."""
    drained: int = 0
    """Rows not written, for their epoch is there already."""
    unread: int = 0
    """Rows not written, for the reader has finished."""
    dropped_columns: int = 0
    """Batches that had a framework column which the sink cannot store."""


@final
class Writer:
    """Writes the rows of one attempt. One thread at a time."""

    def __init__(
        self, sink: Sink, context: WriteContext, encoder: MessageEncoder | None
    ) -> None:
        self.context = context
        self.counters = WriteCounters()
        self._sink = sink
        self._encoder = encoder
        self._summary = Summary()
        self._state = "open"
        keys = sink.config.get("producer.key.columns", ())
        self._router = Router(sink.partitions, context.task, keys)
        self._carries = sink.factory.CARRIES
        # An epoch that is there already is not staged again, but its input is read to
        # the end: whatever feeds it (Spark's stateful operators) relies on that (W3).
        self._author: StreamWriter | None = None
        if not self._is_there():
            self._author = sink.ask(
                "make a writer", lambda: sink.factory.create_writer(context)
            )

    @property
    def end(self) -> End | None:
        """How the other side ended the stream; None while it has not."""
        return None if self._author is None else self._author.end

    def write(self, rows: pa.RecordBatch) -> None:
        """Write rows; blocks while the sink is full.

        Raises:
            SchemaMismatch: permanent; the rows do not fit.
            StreamError: The sink's failure, translated. The attempt is over: abort it.
        """
        self._check("open")
        parcel = unpack(rows)
        self._drop_unstorable(parcel.special)
        plain = parcel.rows
        if self._encoder is not None:
            value = self._encoder.encode(plain)
            plain = pa.RecordBatch.from_arrays([value], names=["value"])
        assert self.context.schema is not None
        plain = conform(plain, self.context.schema)
        self._summary += summarize(plain)
        self.counters.rows += plain.num_rows
        if self._author is None:
            self.counters.drained += plain.num_rows
            return
        for outgoing in self._router.route(replace(parcel, rows=plain)):
            if self._author.end is not None:
                self.counters.unread += outgoing.rows.num_rows
                continue
            self._write(self._author, outgoing)

    def commit(self) -> CommitMessage:
        """End the attempt; the message goes to the committer.

        Raises:
            StreamError: The sink's failure, translated.
        """
        self._check("open")
        self._state = "committed"
        author = self._author
        return CommitMessage(
            replace(self.context, schema=None),
            self._summary,
            None if author is None else self._sink.call(author.commit),
            self._sink.config.digest(),
            drained=author is None,
        )

    def abort(self) -> None:
        """Leave nothing behind; after a failure, and twice, it is fine."""
        if self._state == "open" and self._author is not None:
            self._sink.call(self._author.abort)
        self._state = "aborted" if self._state == "open" else self._state

    def close(self) -> None:
        """Close; an attempt that was not committed is aborted."""
        if self._state == "closed":
            return
        try:
            self.abort()
        finally:
            self._state = "closed"
            if self._author is not None:
                self._sink.call(self._author.close)
            if self._encoder is not None:
                self._encoder.close()

    def _write(self, author: StreamWriter, outgoing: Outgoing) -> None:
        try:
            self._sink.call(lambda: author.write(outgoing))
        except StreamError:
            self.abort()
            raise

    def _is_there(self) -> bool:
        writer_id = self.context.writer_id
        if writer_id is None or not self._sink.claims.idempotent:
            return False
        last = self._sink.ask(
            "ask for the last epoch",
            lambda: self._sink.factory.fetch_last_commit(writer_id),
        )
        return last is not None and last.epoch >= self.context.epoch

    def _drop_unstorable(self, special: dict[str, Any]) -> None:
        for name in ("_headers", "_timestamp", "_topic"):
            if name in special and name not in self._carries:
                if not self.counters.dropped_columns:
                    what = "the sink cannot store the column %s: it is dropped"
                    log.warning("stream %r: " + what, self._sink.config.name, name)
                self.counters.dropped_columns += 1
                del special[name]

    def _check(self, wanted: str) -> None:
        if self._state != wanted:
            msg = f"the writer is {self._state}"
            raise ClosedError(msg, stream=self._sink.config.name)
