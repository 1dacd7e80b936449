"""A stream opened for writing, as used by Spark, the command line and pipelines.

`Sink`, `Writer` and `Committer` implement the [f] rules of W: routing, schema, draining
of committed epochs, comparison of summaries, refusal of epochs whose predecessor was
forgotten.
"""

from __future__ import annotations

import uuid
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, final

from streamfactory.conversion.tabular import Rows, rows_of
from streamfactory.spi import (
    Abandoned,
    Cancelled,
    Failed,
    Finished,
    MisuseError,
    ReaderFinished,
    Role,
    StreamError,
    Verdict,
    WriteContext,
    WriteKind,
    WriterFenced,
    envelope_schema,
)
from streamfactory.spi.arguments import (
    COUNT,
    FLAG,
    POSITION,
    TEXT,
    instance,
    takes,
)
from streamfactory.spi.ddl import SCHEMA
from streamfactory.spi.notebook import html_of, one_line
from streamfactory.wiring.config.guarantees import check_guarantee, end_verdict
from streamfactory.wiring.core.clock import Clock
from streamfactory.wiring.core.closing import Closing
from streamfactory.wiring.core.guard import log, log_warnings
from streamfactory.wiring.writing.claimed import ClaimedCommitters
from streamfactory.wiring.writing.committer import Committer
from streamfactory.wiring.writing.files import FileWriters
from streamfactory.wiring.writing.keys import KeyColumns, KeyEncoder
from streamfactory.wiring.writing.producer import Producer
from streamfactory.wiring.writing.routing import home_of
from streamfactory.wiring.writing.targets import Targets
from streamfactory.wiring.writing.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    from streamfactory.spi import End, LastCommit, Position
    from streamfactory.wiring.config.settled import Configured
    from streamfactory.wiring.writing.producer import Wrap


WRITE_KIND: Final = instance(WriteKind, taken="pass a streamfactory.spi.WriteKind")
COMMITTER: Final = instance(Committer, taken="pass what Sink.committer returns")
END: Final = instance(
    *(Abandoned, Cancelled, Failed, Finished, ReaderFinished),
    taken="pass an end of streamfactory.spi, such as Finished()",
)


@final
class Sink(Closing):
    """Creates the writers and committers of a stream.

    Thread-safe; connects on first use.

    Args:
        configured: The configuration and its plug-ins.
        clock: The clock; simulations replace it.
        wrap: Wraps the backend's factory, to inject faults in simulations.
        crashes: Whether writers are dropped as a killed process drops them, in
            simulations: they do not warn of rows that are never committed.

    Raises:
        Unsupported: misuse; the type cannot be written.
    """

    def __init__(
        self,
        configured: Configured,
        *,
        clock: Clock | None = None,
        wrap: Wrap | None = None,
        crashes: bool = False,
    ) -> None:
        self._crashes = crashes
        self.configured = configured
        """The configuration and its plug-ins."""
        self.config = configured.config
        self.producer = Producer(configured, clock or Clock(), wrap)
        self.factory = self.producer.factory
        self.guard = self.producer.guard
        self.claims = self.producer.claims
        self._verdicts: dict[bool, Verdict] = {}
        """What `guarantee` has returned, with a writer id and without."""
        self._keys: KeyColumns | None = None
        if configured.key_decoder is not None and configured.decoder is not None:
            self._keys = KeyColumns(configured.key_decoder, self.config)
        self._targets = Targets(self.producer, configured.decoder, self._keys)
        self._claimed = ClaimedCommitters(clock or Clock())
        self.files = FileWriters(self.producer, self._targets.decide, self.guarantee)
        """Creates writers of epochs whose files another program writes."""
        log_warnings(self.config)

    @takes(writer_id=TEXT)
    def guarantee(self, *, writer_id: str | None) -> Verdict:
        """Return the guarantee of writing with this writer id.

        Raises:
            GuaranteeRefused: config; ``guarantee`` is stronger.
        """
        if writer_id == "":
            msg = "writer.id must not be empty"
            raise MisuseError(msg, stream=self.config.name, remedy="omit it")
        named = writer_id is not None
        found = self._verdicts.get(named)
        if found is None:
            verdict = end_verdict(self.config, self.claims, Role.WRITE, writer_id=named)
            found = check_guarantee("sink", verdict, [self.config])
            self._verdicts[named] = found
        return found

    @property
    def schema(self) -> pa.Schema | None:
        """The schema that rows must fit: the topic's, else the declared one.

        None if the first rows decide it.
        """
        return self._targets.schema

    @property
    def declared(self) -> pa.Schema | None:
        """The option ``schema``, as a topic is created with it; None without one."""
        return self._targets.declared

    @property
    def framework_columns(self) -> frozenset[str]:
        """The columns of rows to write that say what is done with a row (rule W8)."""
        return self._targets.framework_columns

    @property
    def refuses(self) -> bool:
        """Whether rows with columns that the topic lacks are refused.

        Not by ``schema.contract`` of a topic that evolves, or of one that discards.
        """
        return self._targets.refuses

    def lacks(self, columns: Iterable[str]) -> frozenset[str]:
        """Return those columns of rows for which the topic has none.

        Empty if the first rows decide its columns, or if it stores messages.
        """
        schema = self.schema
        if schema is None or schema.equals(envelope_schema()):
            return frozenset()
        return frozenset(columns) - self.framework_columns - set(schema.names)

    @takes(schema=SCHEMA)
    def canonical(self, schema: pa.Schema) -> pa.Schema:
        """Return the stored schema of typed rows, if they decide it."""
        return self._targets.canonical(schema)

    @takes(topic=TEXT)
    def partition_count(self, topic: str | None = None) -> int:
        """As `Producer.partition_count`."""
        return self.producer.partition_count(topic)

    @takes(schema=SCHEMA)
    def check(self, schema: pa.Schema) -> None:
        """Refuse a schema that does not fit; creates nothing.

        Raises:
            ConfigError: config; typed rows with a decoder, or messages without one.
            SchemaMismatch: permanent; has the column.
        """
        self._targets.decide(schema)

    @takes(
        schema=SCHEMA,
        writer_id=TEXT,
        epoch=COUNT,
        task=COUNT,
        kind=WRITE_KIND,
        committer=COMMITTER,
        shared=FLAG,
    )
    def writer(
        self,
        schema: pa.Schema | str,
        *,
        writer_id: str | None = None,
        epoch: int = 0,
        task: int | None = None,
        kind: WriteKind = WriteKind.STREAMING,
        committer: Committer | None = None,
        shared: bool = True,
    ) -> Writer:
        """Create the writer of one attempt.

        The caller commits or aborts, and closes it.

        Args:
            schema: Schema of the rows, or Spark DDL, with the framework's columns
                (``_key``, ...).
            writer_id: Survives restarts; None claims no idempotence.
            epoch: At least 0, increasing per writer.
            task: Number of the task within the epoch, which determines the partition of
                rows without a key; None if the epoch has one task: then writer and
                epoch determine it.
            kind: Whether epochs form a sequence.
            committer: Committer of this writer in the same process, if any: saves a
                call if the epoch is known not to be committed.
            shared: Whether the caller may change the memory of the rows before the
                commit: then what the caller can change is copied by each write.

        Raises:
            GuaranteeRefused: config.
            ConfigError: config; typed rows with a decoder, or messages without one.
            SchemaMismatch: permanent; rows of this schema do not fit the sink.
        """
        self.guarantee(writer_id=writer_id)
        number = task or 0
        target = self._targets.decide(schema)
        self._targets.warn_of_guesses(target.stored)
        attempt = uuid.uuid4().hex
        context = WriteContext(writer_id, epoch, number, attempt, kind, target.stored)
        home = home_of(writer_id, epoch, task)
        with ExitStack() as unless_made:
            encoder = self._targets.encoder()
            if encoder is not None:
                unless_made.callback(encoder.close)
            fresh = committer is not None and committer.precedes(epoch)
            writer = Writer(
                self.producer,
                context,
                target,
                encoder,
                home,
                fresh=fresh,
                shared=shared,
                keys=None
                if self._keys is None
                else KeyEncoder(self._keys, self.producer),
                warns=not self._crashes,
            )
            unless_made.pop_all()
        return writer

    @takes(writer_id=TEXT, kind=WRITE_KIND)
    def committer(
        self, *, writer_id: str | None = None, kind: WriteKind = WriteKind.STREAMING
    ) -> Committer:
        """Create the committer of one writer. The caller closes it.

        Raises:
            GuaranteeRefused: config.
        """
        self.guarantee(writer_id=writer_id)
        author = self.producer.ask(
            "create a committer", lambda: self.factory.create_committer(writer_id)
        )
        return Committer(self.producer, author, writer_id, kind)

    @takes(writer_id=TEXT)
    def last_epoch(self, writer_id: str) -> int | None:
        """Return the last committed epoch of a writer; None if none is remembered.

        Does not claim the writer: instances that use it can still commit.
        """
        last = self._last(writer_id)
        return None if last is None else last.epoch

    @takes(writer_id=TEXT)
    def last_position(self, writer_id: str) -> Position | None:
        """Return the source's position of a writer's last commit; None without one.

        Does not claim the writer.
        """
        last = self._last(writer_id)
        return None if last is None else last.source_position

    def _last(self, writer_id: str) -> LastCommit | None:
        return self.producer.ask(
            "fetch the last epoch", lambda: self.factory.fetch_last_commit(writer_id)
        )

    @takes(writer_id=TEXT, epoch=COUNT, source_position=POSITION)
    def put(
        self,
        rows: object,
        *,
        writer_id: str | None = None,
        epoch: int | None = None,
        source_position: Position | None = None,
    ) -> bool:
        """Write and commit one epoch from this process.

        A script that is run again after any end passes a writer id, and the same epoch
        for the same rows: epochs that are committed have no effect. Without an epoch
        rows are always written, as the writer's next one. Threads that put as one
        writer take turns; consecutive puts within a second claim the writer once.

        The columns ``_partition`` and ``_key`` say where a row goes; all others are
        stored, or refused.

        Args:
            rows: All rows of the epoch: an Arrow table, batch or reader, a data frame
                of pandas or Polars, a relation of DuckDB, a dictionary of columns, or a
                list or generator of batches, dictionaries, dataclasses or pydantic
                models. Rows that are Python objects are collected.
            writer_id: Survives restarts; with it, repeating an epoch has no effect.
            epoch: At least 0, increasing per writer; the first may be any. None for the
                one after the writer's last.
            source_position: Stored with the commit.

        Returns:
            True if this call wrote it, False if it, or a later one, was committed
            before.

        Raises:
            MisuseError: misuse; the object has no rows.
            StreamError: See `Writer.write` and `Committer.commit`. A `TransientError`
                may be raised after the commit: with a writer id and an epoch, put the
                epoch again.
        """
        found = rows_of(rows)
        if found.inferred:
            self._targets.warn_of_guesses(found.schema, found.inferred)
        if writer_id is None:
            committer = self.committer(kind=WriteKind.BATCH)
            return self._put(committer, found, None, epoch or 0, source_position)
        with self._claimed.turn(writer_id):
            kept = self._claimed.take(writer_id)
            if kept is not None and found.is_read_once:
                kept.close()  # the rows could not be written again below
                kept = None
            if kept is not None:
                try:
                    return self._put(kept, found, writer_id, epoch, source_position)
                except WriterFenced:
                    pass  # another process put since: this one claims the writer again
            committer = self.committer(writer_id=writer_id, kind=WriteKind.BATCH)
            return self._put(committer, found, writer_id, epoch, source_position)

    def _put(
        self,
        committer: Committer,
        rows: Rows,
        writer_id: str | None,
        epoch: int | None,
        source_position: Position | None,
    ) -> bool:
        """Write an epoch; the committer is cached for the next one, or closed."""
        with ExitStack() as unless_kept:
            unless_kept.callback(committer.close)
            last = None if writer_id is None else committer.last_epoch()
            number = (0 if last is None else last + 1) if epoch is None else epoch
            written = False
            if last is None or number >= last:
                with self.writer(
                    rows.schema,
                    writer_id=writer_id,
                    epoch=number,
                    kind=WriteKind.BATCH,
                    committer=committer,
                    # A reader may use the memory of a batch for the next one; and rows
                    # that only this process has may be referred to beyond this call.
                    shared=rows.is_read_once
                    or not (self.claims.durable or self.claims.shared),
                ) as writer:
                    writer.write(rows)
                    staged = [writer.commit()]
                    written = committer.commit(number, staged, source_position)
            if writer_id is not None:
                unless_kept.pop_all()
                self._claimed.keep(writer_id, committer)
        return written

    @takes(end=END)
    def end_stream(self, end: End) -> End | None:
        """End the stream for its readers, if its type has an end.

        Returns:
            `ReaderFinished`, after a warning, if a reader disconnected before it
            confirmed the end, and so may lack rows; else None.
        """
        ended = self.producer.ask(
            "end the stream", lambda: self.factory.end_stream(end)
        )
        if isinstance(ended, ReaderFinished):
            text = "stream %r: a reader disconnected before it received the end of "
            text += "the stream, and may lack rows"
            log.warning(text, self.config.name)
        return ended

    def __repr__(self) -> str:
        return f"<Sink {self.config.name!r} of type {self.config.type!r}>"

    def _repr_html_(self) -> str:
        shown = [("type", self.config.type)]
        if "topic.name" in self.config:
            shown.append(("topic", self.config.topic))
        try:
            shown.append(("guarantee", str(self.guarantee(writer_id="a"))))
        except StreamError as error:
            shown.append(("guarantee", error.what))
        facts = [(name, one_line(value, 500)) for name, value in shown]
        note = "the guarantee is that of puts with a writer id"
        return html_of(one_line(f"sink {self.config.name!r}"), facts, notes=[note])

    def close(self) -> None:
        """Close the factory; may be called twice."""
        self.producer.close(self._claimed.close)
