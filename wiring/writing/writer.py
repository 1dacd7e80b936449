"""The final `Writer`: the rows of one attempt, routed, checked and counted."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, final

import pyarrow as pa

from streamfactory.spi import (
    ClosedError,
    CommitMessage,
    ConnectionFailed,
    ContractBroken,
    Failed,
    MessageEncoder,
    Outgoing,
    ReaderFinished,
    StreamError,
    StreamWriter,
    Unsupported,
    WriteContext,
)
from streamfactory.wiring.core.conform import conform
from streamfactory.wiring.core.guard import log
from streamfactory.wiring.decoding.deadletters import varying_columns
from streamfactory.wiring.writing.routing import Parcel, Router, unpack
from streamfactory.wiring.writing.summary import Summing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfactory.spi import End
    from streamfactory.wiring.writing.producer import Producer


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
    """Framework columns that the sink cannot store, once for each batch."""


@dataclass(frozen=True, slots=True)
class Target:
    """What becomes of rows."""

    rows: pa.Schema
    """What they have to fit."""
    stored: pa.Schema
    """What of them is stored: the same, or one column of encoded messages."""
    carries: frozenset[str]
    """The framework's columns that are stored beside them."""


@final
class Writer:
    """Writes the rows of one attempt. One thread at a time; any may close.

    Args:
        producer: Calls the author.
        context: Which attempt.
        target: What becomes of the rows.
        encoder: Makes messages of rows; None where rows are stored as they are.
        home: Modulo the number of partitions: where rows without key or partition go.
        fresh: Whether the epoch is known not to be committed yet.
    """

    def __init__(
        self,
        producer: Producer,
        context: WriteContext,
        target: Target,
        encoder: MessageEncoder | None,
        home: int,
        *,
        fresh: bool = False,
    ) -> None:
        self.context = context
        self.counters = WriteCounters()
        self._producer = producer
        self._target = target
        self._encoder = encoder
        # Only an epoch that its writer may repeat is ever compared with another.
        named = context.writer_id is not None and producer.claims.idempotent
        compared = named and producer.config["epoch.mismatch"] == "fail"
        self._summing = Summing(content=compared, without=varying_columns(target.rows))
        self._state = "open"
        self._busy = threading.Lock()
        self._closing = threading.Event()
        self._warned: set[str] = set()
        keys = producer.config.get("producer.key.columns", ())
        self._router = Router(producer.partition_count, home, keys)
        # An epoch that is there already is not staged again, but its input is read to
        # the end: whatever feeds it (Spark's stateful operators) relies on that (W3).
        self._author: StreamWriter | None = None
        if fresh or not self._is_there():
            self._author = producer.ask(
                "make a writer", lambda: producer.factory.create_writer(context)
            )

    @property
    def end(self) -> End | None:
        """How the other side ended the stream; None while it has not."""
        author = self._author
        return None if author is None else self._producer.call(lambda: author.end)

    def write(self, rows: pa.RecordBatch) -> None:
        """Write rows; blocks while the sink is full.

        Raises:
            SchemaMismatch: permanent; the rows do not fit. None of them was taken.
            ConnectionFailed: transient; the other side broke off. The attempt is over.
            StreamError: The sink's failure, translated. The attempt is over.
            ClosedError: misuse; closed before, or while it waited.
        """
        with self._busy:
            self._check_open()
            try:
                parcel = self._unpacked(rows)
                routed = self._routed(parcel)
            except StreamError as error:
                error.at(stream=self._producer.config.name)
                raise
            plain = parcel.rows
            self._summing.add(plain, self._carried(parcel))
            self.counters.rows += plain.num_rows
            if self._author is None:
                self.counters.drained += plain.num_rows
            for outgoing in routed:
                self._write(outgoing)

    def commit(self) -> CommitMessage:
        """End the attempt; the message goes to the committer.

        Raises:
            StreamError: The sink's failure, translated. The attempt is over.
        """
        with self._busy:
            self._check_open()
            author, payload = self._author, None
            if author is not None:
                try:
                    payload = self._producer.call(author.commit)
                except StreamError:
                    self._give_up()
                    raise
            self._state = "committed"
            return CommitMessage(
                replace(self.context, schema=None),
                self._summing.total(),
                payload,
                self._producer.config_digest,
                drained=author is None,
            )

    def abort(self) -> None:
        """Leave nothing behind; after a failure, and twice, it is fine."""
        with self._busy:
            self._abort()

    def close(self) -> None:
        """Close; an attempt that was not committed is aborted. Twice is fine.

        A write that waits in another thread is woken.
        """
        self._closing.set()
        if not self._busy.acquire(blocking=False):
            self._wake()
            self._busy.acquire()
        try:
            if self._state == "closed":
                return
            with ExitStack() as last:
                if self._encoder is not None:
                    last.callback(self._producer.call, self._encoder.close)
                if self._author is not None:
                    last.callback(self._producer.call, self._author.close)
                last.callback(setattr, self, "_state", "closed")
                self._abort()
        finally:
            self._busy.release()

    def _unpacked(self, rows: pa.RecordBatch) -> Parcel:
        parcel = unpack(rows)
        return replace(parcel, rows=conform(parcel.rows, self._target.rows))

    def _carried(self, parcel: Parcel) -> dict[str, pa.Array]:
        """The framework's columns that are stored beside the rows."""
        carries, special = self._target.carries, parcel.special
        return {name: special[name] for name in special if name in carries}

    def _routed(self, parcel: Parcel) -> Sequence[Outgoing]:
        """Where the rows go: checked before the first is written."""
        if self._author is None or not parcel.rows.num_rows:
            return ()
        key = self._router.key_of(parcel)
        self._count_unstorable(parcel)
        rows, special = parcel.rows, self._carried(parcel)
        if "_partition" in parcel.special:
            special["_partition"] = parcel.special["_partition"]
        if self._encoder is not None:
            rows = self._encoded(self._encoder, rows)
        return list(self._router.route(Parcel(rows, special), key))

    def _encoded(self, encoder: MessageEncoder, rows: pa.RecordBatch) -> pa.RecordBatch:
        values = self._producer.call(lambda: encoder.encode(rows))
        if len(values) != rows.num_rows:
            msg = f"the encoder made {len(values)} messages of {rows.num_rows} rows"
            raise ContractBroken(msg, stream=self._producer.config.name)
        messages = pa.RecordBatch.from_arrays([values], names=["value"])
        return conform(messages, self._target.stored)

    def _write(self, outgoing: Outgoing) -> None:
        author = self._author
        assert author is not None
        try:
            end = self.end
            if isinstance(end, ReaderFinished):  # it has enough: that is no error
                self.counters.unread += outgoing.rows.num_rows
                return
            if end is not None:
                how = end.cause if isinstance(end, Failed) else type(end).__name__
                msg = f"the other side ended the stream: {how}"
                raise ConnectionFailed(msg, stream=self._producer.config.name)
            self._producer.call(lambda: author.write(outgoing))
            self._check_open()
        except StreamError as error:
            self._give_up()
            if self._closing.is_set() and not isinstance(error, ClosedError):
                raise self._closed_error() from error
            raise

    def _abort(self) -> None:
        if self._state == "open":
            self._state = "aborted"
            if self._author is not None:
                self._producer.call(self._author.abort)

    def _give_up(self) -> None:
        """Abort after a failure, which is the error to tell."""
        try:
            self._abort()
        except StreamError as error:
            log.info(
                "stream %r: aborting failed: %s", self._producer.config.name, error
            )

    def _wake(self) -> None:
        author = self._author
        if author is not None:
            try:
                self._producer.call(author.wake)
            except Unsupported:
                return  # it does not block for good

    def _is_there(self) -> bool:
        writer_id = self.context.writer_id
        if writer_id is None or not self._producer.claims.idempotent:
            return False
        last = self._producer.ask(
            "ask for the last epoch",
            lambda: self._producer.factory.fetch_last_commit(writer_id),
        )
        return last is not None and last.epoch >= self.context.epoch

    def _count_unstorable(self, parcel: Parcel) -> None:
        for name in ("_key", "_headers", "_timestamp", "_topic"):
            if name not in parcel.special or name in self._target.carries:
                continue
            self.counters.dropped_columns += 1
            if name not in self._warned:
                self._warned.add(name)
                what = "the sink cannot store the column %s: it is dropped"
                log.warning("stream %r: " + what, self._producer.config.name, name)

    def _check_open(self) -> None:
        if self._closing.is_set() or self._state != "open":
            raise self._closed_error()

    def _closed_error(self) -> ClosedError:
        state = "closed" if self._closing.is_set() else self._state
        return ClosedError(f"the writer is {state}", stream=self._producer.config.name)
