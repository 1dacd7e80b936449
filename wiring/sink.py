"""One stream opened for writing: the final `Sink`, `Writer` and `Committer`.

They make the [f] rules of W true once: routing, schema, draining of what is there
already, comparison of summaries, refusal of epochs whose predecessor nobody remembers.
"""

from __future__ import annotations

import threading
import uuid
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar, final

import pyarrow as pa

from streamfactory.spi import (
    ClosedError,
    CommitMessage,
    EpochInThePast,
    EpochMarkerLost,
    EpochMismatch,
    GuaranteeRefused,
    LastCommit,
    MessageEncoder,
    MisuseError,
    Outgoing,
    Position,
    ProducerFactory,
    StreamCommitter,
    StreamError,
    StreamWriter,
    Summary,
    Unsupported,
    Verdict,
    WriteContext,
    WriteKind,
    envelope_schema,
    sink_guarantee,
)
from streamfactory.wiring.canonical import canonical_schema
from streamfactory.wiring.clock import Clock
from streamfactory.wiring.conform import conform
from streamfactory.wiring.guard import Guard, log
from streamfactory.wiring.routing import SPECIAL, Router, unpack
from streamfactory.wiring.summary import difference, summarize

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streamfactory.spi import End
    from streamfactory.wiring.configure import Configured

    Wrap = Callable[[ProducerFactory], ProducerFactory]

T = TypeVar("T")
"""What a guarded call answers."""


@final
class Sink:
    """A stream's writers and committers. Thread-safe; connects when something is asked.

    Args:
        configured: The configuration and its plug-ins.
        clock: Time; another one in simulations.
        wrap: Puts something around the author's factory: faults, in simulations.

    Raises:
        Unsupported: misuse; the type cannot be written.
    """

    def __init__(
        self,
        configured: Configured,
        *,
        clock: Clock | None = None,
        wrap: Wrap | None = None,
    ) -> None:
        self.config = configured.config
        backend = configured.backend
        if backend.producer_factory is None:
            msg = f"the stream type {backend.name!r} cannot be written"
            raise Unsupported(msg, stream=self.config.name)
        factory = backend.producer_factory(self.config)
        self.factory = factory if wrap is None else wrap(factory)
        self.guard = Guard(self.config, backend, clock or Clock())
        self.claims = self.factory.claims()
        self._descriptor = configured.decoder
        self._closed = threading.Event()

    def guarantee(self, *, writer_id: str | None) -> Verdict:
        """What writing under this id promises.

        Raises:
            GuaranteeRefused: config; ``guarantee`` asks for more.
        """
        verdict = sink_guarantee(self.claims, writer_id=writer_id is not None)
        wanted = self.config.get("guarantee")
        if wanted is not None and wanted > verdict.guarantee:
            msg = f"{wanted} is wanted, this sink gives {verdict}"
            raise GuaranteeRefused(msg, stream=self.config.name)
        return verdict

    @cached_property
    def schema(self) -> pa.Schema | None:
        """The schema that rows have to fit; None where the first rows decide it."""
        return self.ask(
            "ask for the schema",
            lambda: self.factory.fetch_schema(self.config.get("topic.name", "")),
        )

    @cached_property
    def partitions(self) -> int:
        """How many partitions rows are spread over."""
        topic = self.config.get("topic.name", "")
        return self.ask(
            "ask for partitions", lambda: self.factory.fetch_partition_count(topic)
        )

    def writer(
        self,
        schema: pa.Schema,
        *,
        writer_id: str | None = None,
        epoch: int = 0,
        task: int = 0,
        kind: WriteKind = WriteKind.STREAMING,
    ) -> Writer:
        """The writer of one attempt. The caller commits or aborts, and closes it.

        Args:
            schema: Of the rows to come, the framework's columns (``_key``, ...) among
                them.
            writer_id: Survives restarts; None claims no idempotence.
            epoch: At least 0, rising per writer.
            task: Number of the task within the epoch.
            kind: Whether epochs continue one another.

        Raises:
            GuaranteeRefused: config.
            SchemaMismatch: permanent; rows of this schema do not fit the sink.
        """
        self.guarantee(writer_id=writer_id)
        encoder = self._encoder()
        if encoder is None:
            target = self._target(schema)
        else:
            target = pa.schema([pa.field("value", pa.binary())])
        context = WriteContext(writer_id, epoch, task, uuid.uuid4().hex, kind, target)
        return Writer(self, context, encoder)

    def committer(
        self, *, writer_id: str | None = None, kind: WriteKind = WriteKind.STREAMING
    ) -> Committer:
        """The committer of one writer. The caller closes it."""
        author = self.ask(
            "make a committer", lambda: self.factory.create_committer(writer_id)
        )
        return Committer(self, author, writer_id, kind)

    def end_stream(self, end: End) -> None:
        """Tell readers how the stream ends, where its kind has an end."""
        self.ask("end the stream", lambda: self.factory.end_stream(end))

    def close(self) -> None:
        """Close what the factory shares; twice is fine."""
        if not self._closed.is_set():
            self._closed.set()
            self.factory.close()

    def ask(self, operation: str, function: Callable[[], T]) -> T:
        """Call the author's code; tried again after passing trouble."""
        timeout = self.config["connection.timeout.millis"] / 1000
        return self.guard.call(
            operation, function, closed=self._closed, timeout=timeout
        )

    def call(self, function: Callable[[], T]) -> T:
        """Call the author's code once: what cannot be repeated blindly."""
        try:
            return function()
        except Exception as error:
            found = self.guard.translate(error)
            if found is error:
                raise
            raise found from error

    def _target(self, schema: pa.Schema) -> pa.Schema:
        plain = pa.schema([field for field in schema if field.name not in SPECIAL])
        wanted = self.schema
        if wanted is None:
            return canonical_schema(plain)
        if wanted.equals(envelope_schema()):
            wanted = pa.schema([wanted.field("value")])
        # Told now rather than with the first rows: an empty table has to fit as well.
        conform(pa.RecordBatch.from_pylist([], schema=plain), wanted)
        return wanted

    def _encoder(self) -> MessageEncoder | None:
        if self._descriptor is None or self._descriptor.encoder is None:
            return None
        topic = self.config.get("topic.name", "")
        return self._descriptor.encoder(self.config.decoder_options(), topic)


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
        self._draining = self._is_there()
        self._author: StreamWriter | None = None
        if not self._draining:
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
        payload = None
        if self._author is not None:
            payload = self._sink.call(self._author.commit)
        return CommitMessage(
            replace(self.context, schema=None),
            self._summary,
            payload,
            self._sink.config.digest(),
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


@final
class Committer:
    """Decides the epochs of one writer. One thread at a time."""

    def __init__(
        self,
        sink: Sink,
        author: StreamCommitter,
        writer_id: str | None,
        kind: WriteKind,
    ) -> None:
        self._sink = sink
        self._author = author
        self._writer_id = writer_id
        self._kind = kind
        self._closed = False
        self._first = True
        self.mismatches = 0
        """Epochs that came again with other content."""

    def last(self) -> LastCommit | None:
        """What this writer committed last; None where nothing is remembered.

        Claims the writer: no earlier instance of it can commit any more.
        """
        self._check_open()
        return self._sink.ask("ask for the last epoch", self._author.last)

    def commit(
        self,
        epoch: int,
        messages: Sequence[CommitMessage | None],
        source_position: Position | None = None,
        *,
        replace_all: bool = False,
    ) -> bool:
        """Make an epoch visible.

        Args:
            epoch: At least the last one; the same again is a no-op (rule W3).
            messages: One for each task that wrote.
            source_position: Stored with the commit.
            replace_all: The epoch replaces everything before it, in one step.

        Returns:
            True where this call made the commit, False where it was there.

        Raises:
            EpochInThePast: misuse.
            EpochMarkerLost: data_loss; nobody remembers the epoch before (rule W7).
            EpochMismatch: misuse; other content, under ``epoch.mismatch=fail``.
            MisuseError: misuse; a message is missing, or of another configuration.
        """
        self._check_open()
        whole = self._checked(epoch, messages)
        summary = sum((m.summary for m in whole), Summary())
        if self._first:
            self._meet_last(epoch)
        staged = [m for m in whole if m.payload is not None]
        decide = self._author.replace if replace_all else self._author.commit
        held = self._sink.call(lambda: decide(epoch, staged, source_position))
        self._first = False
        if held is None:
            return True
        self._compare(epoch, held, summary)
        return False

    def abort(self, epoch: int, messages: Sequence[CommitMessage | None]) -> None:
        """Forget what was staged; missing messages are fine, and so is twice (W4)."""
        self._check_open()
        whole = [m for m in messages if m is not None and m.payload is not None]
        self._sink.call(lambda: self._author.abort(epoch, whole))

    def close(self) -> None:
        """Close; twice is fine."""
        if not self._closed:
            self._closed = True
            self._sink.call(self._author.close)

    def _checked(
        self, epoch: int, messages: Sequence[CommitMessage | None]
    ) -> list[CommitMessage]:
        name, digest = self._sink.config.name, self._sink.config.digest()
        for message in messages:
            if message is None:
                msg = f"epoch {epoch}: the message of a task is missing"
                raise MisuseError(msg, stream=name, remedy="abort, and write it again")
            if message.config_digest != digest:
                msg = f"epoch {epoch}: a task wrote under another configuration"
                raise MisuseError(msg, stream=name, remedy="start all of them again")
        return [message for message in messages if message is not None]

    def _meet_last(self, epoch: int) -> None:
        if self._writer_id is None or not self._sink.claims.idempotent:
            return
        last = self.last()
        streaming = self._kind is WriteKind.STREAMING
        adopted = self._sink.config.get("epoch.adopt") == epoch
        if last is None and epoch > 0 and streaming and not adopted:
            msg = f"epoch {epoch} of writer {self._writer_id!r} has no predecessor here"
            raise EpochMarkerLost(msg, stream=self._sink.config.name)

    def _compare(self, epoch: int, held: LastCommit, summary: Summary) -> None:
        name = self._sink.config.name
        if held.epoch > epoch:
            msg = f"epoch {epoch} is older than the last one, {held.epoch}"
            raise EpochInThePast(msg, stream=name)
        what = None if held.summary is None else difference(summary, held.summary)
        if what is None:
            return
        self.mismatches += 1
        msg = f"epoch {epoch} came again with {what}; the first commit holds"
        if self._sink.config["epoch.mismatch"] == "fail":
            raise EpochMismatch(msg, stream=name)
        log.warning("stream %r: %s", name, msg)

    def _check_open(self) -> None:
        if self._closed:
            msg = "the committer is closed"
            raise ClosedError(msg, stream=self._sink.config.name)
