"""Publishes files and standard input to a stream, epoch by epoch.

The position in each input is stored in the sink with the rows: a run with the same
writer id continues there, however the last one ended.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from os import PathLike, fspath
from typing import TYPE_CHECKING, Final, final

import pyarrow as pa

from streamfactory.conversion.conform import columns_of, conform
from streamfactory.spi import (
    DecodeError,
    Finished,
    FormatRefused,
    Guarantee,
    Partition,
    Position,
    PositionRefused,
    SchemaMismatch,
    StreamError,
    Verdict,
    envelope_schema,
)
from streamfactory.spi.claims import combine
from streamfactory.transfer.inputs import Input, InputOptions, open_inputs
from streamfactory.wiring.config.loading import StreamLike, load
from streamfactory.wiring.core.clock import Clock
from streamfactory.wiring.core.closing import Closing
from streamfactory.wiring.core.guard import log
from streamfactory.wiring.writing.creating import ensure_topic
from streamfactory.wiring.writing.epochs import Epochs
from streamfactory.wiring.writing.sink import Sink

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from streamfactory.spi import LastCommit, StreamConfig
    from streamfactory.wiring.plugins.manager import PluginManager

TOPIC: Final = "inputs"
"""Topic of stored positions; the inputs are its partitions, in order."""
_TURN: Final = 0.2
"""Maximum seconds of one read, and so of the reaction to a stop."""


@dataclass(frozen=True, slots=True)
class Published:
    """The result of a run."""

    rows: int
    epochs: int
    skipped: int
    """Bytes, or rows of Parquet, that an earlier run had published."""
    complete: bool
    """Whether it reached the end of the inputs instead of being stopped."""
    confirmed: bool = True
    """False if a reader of a stream that stores nothing left early: it lacks rows."""


def open_publisher(
    stream: StreamLike,
    inputs: Sequence[str | PathLike[str]],
    *,
    options: Mapping[str, object] | None = None,
    format: str | None = None,
    schema: pa.Schema | None = None,
    delimiter: str | None = None,
    header: bool = True,
    writer_id: str | None = None,
    create: bool = True,
    partitions: int | None = None,
    allow_class_paths: bool = False,
    plugins: PluginManager | None = None,
) -> Publisher:
    """Open a stream, and the inputs to publish into it.

    Args:
        stream: The name of a stream in the catalogue, or its properties.
        inputs: As for `open_inputs`.
        options: Properties that replace those of the definition.
        format: As for `open_inputs`.
        schema: Of the rows; by default the stream's where it has one, else the first
            input's.
        delimiter: As for `open_inputs`.
        header: Whether CSV begins with the names of its columns.
        writer_id: Survives restarts; None claims no idempotence.
        create: Whether the topic may be created.
        partitions: Of a topic that is created.
        allow_class_paths: Whether the configuration may name Python objects.
        plugins: Where types are found; the process's own by default.

    Raises:
        ConfigError: config; every problem of the configuration at once.
        StreamError: Of the stream, or of `open_inputs`.
    """
    configured = load(
        stream,
        "write",
        options=options,
        allow_class_paths=allow_class_paths,
        plugins=plugins,
    )
    how = InputOptions(
        block_size=configured.config["batch.bytes"],
        batch_rows=configured.config["batch.rows"],
        header=header,
        continued=writer_id is not None,
    )
    with ExitStack() as on_failure:
        sink = Sink(configured)
        on_failure.callback(sink.close)
        opened = open_inputs(
            [fspath(path) for path in inputs],
            format=format,
            delimiter=delimiter,
            options=how,
        )
        for one in opened:
            on_failure.callback(one.close)
        publisher = Publisher(
            sink,
            opened,
            writer_id=writer_id,
            declared=schema,
            create=create,
            partitions=partitions,
        )
        on_failure.pop_all()
    return publisher


@final
class Publisher(Closing):
    """Publishes inputs, one after another. One thread runs it.

    Args:
        sink: The sink; closed with the publisher.
        inputs: The inputs; closed with the publisher.
        writer_id: Survives restarts; None claims no idempotence.
        declared: The schema of the rows, if declared.
        create: Whether the topic may be created.
        partitions: Number of partitions of a new topic.

    Raises:
        GuaranteeRefused: config; ``guarantee`` is stronger.
    """

    def __init__(
        self,
        sink: Sink,
        inputs: Sequence[Input],
        *,
        writer_id: str | None,
        declared: pa.Schema | None,
        create: bool,
        partitions: int | None,
    ) -> None:
        self.schema: pa.Schema | None = declared
        """Schema of the rows; None until it is known from the first input."""
        self.sampled: int | None = None
        """Number of rows that the types of columns were guessed from, if they were."""
        self.created = False
        """Whether this run created the topic."""
        self._sink = sink
        self._inputs = inputs
        self.writer_id = writer_id
        self._declared = declared
        self._create = create
        self._partitions = partitions
        self._clock = Clock()
        self._batches = 0
        self._epochs: Epochs | None = None
        self.guarantee = self._promise()
        """The guarantee of publishing, with reasons."""

    @property
    def config(self) -> StreamConfig:
        """The effective configuration."""
        return self._sink.config

    @property
    def rows(self) -> int:
        """Rows committed so far."""
        return 0 if self._epochs is None else self._epochs.rows

    @property
    def epochs(self) -> int:
        """Epochs committed so far."""
        return 0 if self._epochs is None else self._epochs.epochs

    @property
    def size(self) -> int | None:
        """Bytes of all inputs; None if unknown."""
        sizes = [one.size for one in self._inputs]
        return None if None in sizes else sum(size or 0 for size in sizes)

    @property
    def unit(self) -> str:
        """What `Published.skipped` counts: ``bytes``, ``rows``, or both."""
        return " or ".join(sorted({one.unit for one in self._inputs}))

    @property
    def progress(self) -> int:
        """Bytes that were read so far."""
        return sum(one.progress for one in self._inputs)

    def run(
        self,
        stop: threading.Event,
        *,
        begin: Callable[[], None] = lambda: None,
        on_progress: Callable[[int], None] = lambda _: None,
    ) -> Published:
        """Publish all rows that were not published with this writer id before.

        Args:
            stop: When set, the open epoch is committed and this returns.
            begin: Called when the schema is known and the topic exists.
            on_progress: Called frequently with the number of rows so far.

        Raises:
            SchemaMismatch: permanent; rows do not fit. Names the column and the input.
            DecodeError: decode; a part of an input cannot be read. Earlier rows are
                committed.
            PositionRefused: permanent; an input is not the one that was published.
            StreamError: Raised by the sink. With a writer id, run it again.
        """
        self.schema = self._settle_schema(stop)
        if self.schema is None:  # stopped before the first rows
            return Published(0, 0, 0, complete=False)
        self._check_names(self.schema)
        self.created = ensure_topic(
            self._sink,
            self.schema,
            create=self._create,
            partitions=self._partitions,
        )
        spread = self._spread(self.schema)
        schema = self.schema if spread is None else self.schema.append(_PARTITION)
        with Epochs(
            self._sink, schema, writer_id=self.writer_id, clock=self._clock
        ) as epochs:
            self._epochs = epochs
            skipped = self._skip(epochs.last)
            begin()
            complete = self._pump(epochs, spread, stop, on_progress)
        confirmed = not epochs.unread
        if complete and not self._sink.claims.durable:
            # Streams that end with this process are ended normally for their readers.
            confirmed &= self._sink.end_stream(Finished()) is None
        return Published(epochs.rows, epochs.epochs, skipped, complete, confirmed)

    def close(self) -> None:
        """Close everything; twice is fine."""
        with ExitStack() as last:
            last.callback(self._sink.close)
            for one in self._inputs:
                last.callback(one.close)

    def _pump(
        self,
        epochs: Epochs,
        spread: int | None,
        stop: threading.Event,
        on_progress: Callable[[int], None],
    ) -> bool:
        for one in self._inputs:
            while not one.finished:
                if stop.is_set():
                    self._commit(epochs)
                    return False
                patience = epochs.patience if epochs.pending else _TURN
                rows = self._read(epochs, one, max(0.0, min(_TURN, patience)))
                if rows is not None:
                    for part in self._placed(rows, spread):
                        epochs.write(part, part.nbytes)
                if epochs.due:
                    self._commit(epochs)
                on_progress(epochs.rows + epochs.pending)
            if one.unfinished:
                what = (
                    "%s: the line of %d bytes at its end has no line end, and is not "
                )
                what += "published: end the line, and publish again"
                log.warning(what, one.name, one.unfinished)
        self._commit(epochs)
        return True

    def _read(
        self, epochs: Epochs, one: Input, timeout: float
    ) -> pa.RecordBatch | None:
        before = one.offset, one.digest()
        try:
            with self._naming_columns():
                rows = one.read(timeout, epochs.room)
                return None if rows is None else self._fitting(one, rows)
        except StreamError:
            # Earlier rows are valid; the position must not include unread ones.
            self._commit(epochs, {one: before})
            raise

    def _fitting(self, one: Input, rows: pa.RecordBatch) -> pa.RecordBatch:
        assert self.schema is not None
        try:
            return conform(rows, self.schema)
        except StreamError as error:
            error.what = f"{one.name}: {error.what}"
            error.args = (error.what,)
            raise

    def _placed(
        self, rows: pa.RecordBatch, spread: int | None
    ) -> Iterator[pa.RecordBatch]:
        """Return rows with their partition, unless it is determined otherwise."""
        most = self._sink.config["batch.rows"]
        for start in range(0, rows.num_rows, most):
            part = rows.slice(start, most)
            if spread is not None:
                number = pa.scalar(self._batches % spread, pa.int32())
                self._batches += 1
                column = pa.repeat(number, part.num_rows)
                part = part.append_column(_PARTITION, column)
            yield part

    def _commit(
        self, epochs: Epochs, instead: Mapping[Input, tuple[int, str]] | None = None
    ) -> None:
        if not epochs.pending:
            return
        offsets, incarnations = {}, {}
        for index, one in enumerate(self._inputs):
            place = (instead or {}).get(one) or (one.offset, one.digest())
            if place[0]:
                partition = Partition(TOPIC, index)
                offsets[partition], incarnations[partition] = place
        epochs.commit(Position(offsets, incarnations))

    def _skip(self, last: LastCommit | None) -> int:
        """Skip what this writer has published, and return how much that was."""
        if last is None:
            return 0
        position, name = last.source_position, self._sink.config.name
        if position is None or any(p.topic != TOPIC for p in position):
            msg = (
                f"writer id {self.writer_id!r} was used by a writer other than publish"
            )
            remedy = "use another writer id"
            raise PositionRefused(msg, stream=name, remedy=remedy)
        if len(position) > len(self._inputs):
            msg = (
                f"{len(position)} inputs were published with writer id "
                f"{self.writer_id!r}, but {len(self._inputs)} were passed"
            )
            remedy = "pass the same inputs in the same order, or use another writer id"
            raise PositionRefused(msg, stream=name, remedy=remedy)
        for partition, offset in position.items():
            one = self._inputs[partition.id]
            one.skip(offset, position.incarnations[partition])
        return sum(position.values())

    def _settle_schema(self, stop: threading.Event) -> pa.Schema | None:
        """Return the schema of the rows.

        Declared, else the stream's, else the first input's.
        """
        known = self._sink.schema
        if known is not None and known.equals(envelope_schema()):
            known = None  # for messages the encoder, or `value`, determines it
        expected = self._declared or known
        if expected is not None:
            self._expect(expected)
        if self._declared is not None:
            return self._declared
        while not stop.is_set():
            with self._naming_columns():
                found = self._inputs[0].columns(_TURN)
            if found is not None and expected is None:
                # Guessed types apply to all later inputs.
                self.sampled = self._inputs[0].sampled
                self._expect(found, guessed=self.sampled is not None)
            if found is not None:
                return found
        return None

    @contextmanager
    def _naming_columns(self) -> Iterator[None]:
        """Add the topic's columns to errors of an input that was read with them."""
        try:
            yield
        except (DecodeError, FormatRefused, SchemaMismatch) as error:
            known, topic = self._sink.schema, self._sink.config.get("topic.name")
            typed = known is not None and not known.equals(envelope_schema())
            if typed and self._declared is None:
                has = f"topic {topic!r} has {columns_of(known)}"
                error.remedy = has if error.remedy is None else f"{error.remedy}; {has}"
            raise

    def _check_names(self, schema: pa.Schema) -> None:
        """Refuse columns that the topic does not have, or requires, all at once.

        Raises:
            SchemaMismatch: permanent.
        """
        known = self._sink.schema
        if known is None or known.equals(envelope_schema()):
            return
        special = self._sink.framework_columns
        names = [name for name in schema.names if name not in special]
        unknown = [name for name in names if name not in known.names]
        unknown = unknown if self._sink.refuses else []
        missing = [field for field in known if field.name not in names]
        if not unknown and all(field.nullable for field in missing):
            if missing:
                left_out = ", ".join(field.name for field in missing)
                log.warning("the inputs have no column %s, which is null", left_out)
            return
        found = [("unknown", unknown), ("missing", [field.name for field in missing])]
        causes = "; ".join(
            f"{kind}: {', '.join(map(repr, some))}" for kind, some in found if some
        )
        config = self._sink.config
        msg = f"the columns do not fit the topic {config.topic!r}: {causes}"
        remedy = "rename the columns, or publish to another topic; this one has "
        remedy += columns_of(known)
        if len(unknown) == 1 and len(names) == 1:
            for delimiter in (";", "\t", "|"):
                if delimiter in unknown[0]:
                    remedy = f"the columns seem to be separated by {delimiter!r}: set "
                    remedy += f"the delimiter (--delimiter {delimiter!r})"
        raise SchemaMismatch(msg, stream=config.name, remedy=remedy)

    def _expect(self, schema: pa.Schema, *, guessed: bool = False) -> None:
        for one in self._inputs:
            one.expect(schema, guessed=guessed)

    def _spread(self, schema: pa.Schema) -> int | None:
        """Return the number of partitions for round-robin.

        None if the rows determine it.
        """
        count = self._sink.partition_count()
        decided = self._sink.framework_columns & {"_partition", "_key", "_topic"}
        decided &= set(schema.names)
        keys = self._sink.config.get("producer.key.columns")
        return None if count == 1 or decided or keys else count

    def _promise(self) -> Verdict:
        verdict = self._sink.guarantee(writer_id=self.writer_id)
        if all(one.size is not None for one in self._inputs):
            return verdict
        reason = "provided that standard input has the same bytes again"
        return combine(verdict, Verdict(Guarantee.EXACTLY_ONCE, (reason,)))


_PARTITION: Final = pa.field("_partition", pa.int32(), nullable=False)
