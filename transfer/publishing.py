"""Files and standard input published into a stream, epoch by epoch.

How much of each input was taken is stored in the sink with the rows: a run under the
same writer id goes on behind them, however the last one ended.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, final

import pyarrow as pa

from streamfactory.spi import (
    DecodeError,
    Finished,
    FormatRefused,
    Guarantee,
    MisuseError,
    Partition,
    Position,
    PositionRefused,
    SchemaMismatch,
    StreamError,
    Verdict,
    combine,
    envelope_schema,
)
from streamfactory.transfer.inputs import Input, InputOptions, open_input
from streamfactory.transfer.inputs.formats import STANDARD_INPUT
from streamfactory.wiring.config.loading import Named, load
from streamfactory.wiring.core.clock import Clock
from streamfactory.wiring.core.closing import Closing
from streamfactory.wiring.core.conform import columns_of, conform
from streamfactory.wiring.writing.creating import ensure_topic
from streamfactory.wiring.writing.epochs import Epochs
from streamfactory.wiring.writing.routing import SPECIAL
from streamfactory.wiring.writing.sink import Sink

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from streamfactory.spi import LastCommit, StreamConfig
    from streamfactory.wiring.plugins.manager import PluginManager

TOPIC: Final = "inputs"
"""What stored positions name; the inputs are its partitions, in their order."""
_TURN: Final = 0.2
"""Seconds that one read waits at the most: a stop is noticed that soon."""


@dataclass(frozen=True, slots=True)
class Published:
    """What a run has published."""

    rows: int
    epochs: int
    skipped: int
    """Bytes, or rows of Parquet, that an earlier run had published."""
    complete: bool
    """Whether it reached the end of the inputs, rather than being stopped."""


def open_publisher(
    stream: Named,
    inputs: Sequence[str],
    *,
    options: Mapping[str, str] | None = None,
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
    """Open a stream and what is to be published into it.

    Args:
        stream: The name of a stream in the catalogue, or its properties.
        inputs: Paths, or ``-`` for standard input.
        options: Properties that replace those of the definition.
        format: Of all inputs; by default what each path ends in says.
        schema: Of the rows; by default the stream's where it has one, else the first
            input's.
        delimiter: Of CSV; by default a tab for ``.tsv``, else a comma.
        header: Whether CSV begins with the names of its columns.
        writer_id: Survives restarts; None claims no idempotence.
        create: Whether the topic may be created.
        partitions: Of a topic that is created.
        allow_class_paths: Whether the configuration may name Python objects.
        plugins: Where types are found; the process's own by default.

    Raises:
        ConfigError: config; every problem of the configuration at once, or an input
            that cannot be opened.
        StreamError: As it fits.
    """
    if not inputs or list(inputs).count(STANDARD_INPUT) > 1:
        msg = "standard input is given twice" if inputs else "there is no input"
        raise MisuseError(msg, remedy="give files, or - once for standard input")
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
        delimiter=delimiter or ",",
        header=header,
    )
    with ExitStack() as unless_made:
        sink = Sink(configured)
        unless_made.callback(sink.close)
        opened = []
        for name in inputs:
            tabbed = delimiter is None and ".tsv" in name.lower()
            own = replace(how, delimiter="\t") if tabbed else how
            opened.append(open_input(name, format=format, options=own))
            unless_made.callback(opened[-1].close)
        publisher = Publisher(
            sink,
            opened,
            writer_id=writer_id,
            declared=schema,
            create=create,
            partitions=partitions,
        )
        unless_made.pop_all()
    return publisher


@final
class Publisher(Closing):
    """Publishes inputs, one after another. One thread runs it.

    Args:
        sink: Where to; closed with the publisher.
        inputs: What; closed with the publisher.
        writer_id: Survives restarts; None claims no idempotence.
        declared: The schema of the rows, where somebody says it.
        create: Whether the topic may be created.
        partitions: Of a topic that is created.

    Raises:
        GuaranteeRefused: config; ``guarantee`` asks for more.
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
        """Of the rows; None until the first input tells it."""
        self.created = False
        """Whether the topic was made for this."""
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
        """What publishing promises, with reasons."""

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
        """Bytes of all inputs; None where nobody knows."""
        sizes = [one.size for one in self._inputs]
        return None if None in sizes else sum(size or 0 for size in sizes)

    @property
    def unit(self) -> str:
        """What `Published.skipped` counts: ``bytes``, ``rows``, or both."""
        return " or ".join(sorted({one.unit for one in self._inputs}))

    @property
    def progress(self) -> int:
        """How many of them were taken."""
        return sum(one.progress for one in self._inputs)

    def run(
        self,
        stop: threading.Event,
        *,
        begin: Callable[[], None] = lambda: None,
        tell: Callable[[int], None] = lambda _: None,
    ) -> Published:
        """Publish everything that was not published under this writer id before.

        Args:
            stop: Once it is set, the open epoch is committed, and that is all.
            begin: Called when the schema is known and the topic is there.
            tell: Is given the rows so far, often.

        Raises:
            SchemaMismatch: permanent; rows do not fit. Names the column and the input.
            DecodeError: decode; an input holds what cannot be read. What came before
                it is committed.
            PositionRefused: permanent; an input is not the one that was published.
            StreamError: The sink's. With a writer id, run it again.
        """
        self.schema = self._settle_schema(stop)
        if self.schema is None:  # stopped before anything came
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
            complete = self._pump(epochs, spread, stop, tell)
        if complete and not self._sink.claims.durable:
            # What does not outlive this process ends with it: readers learn that all
            # is well.
            self._sink.end_stream(Finished())
        return Published(epochs.rows, epochs.epochs, skipped, complete)

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
        tell: Callable[[int], None],
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
                tell(epochs.rows + epochs.pending)
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
            # What came before is good; the position must not cover what was not read.
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
        """Rows with the partition that they go to, where nothing else decides it."""
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
        """Go on behind what this writer has published; how much that was."""
        if last is None:
            return 0
        position, name = last.source_position, self._sink.config.name
        if position is None or any(p.topic != TOPIC for p in position):
            msg = f"the writer {self.writer_id!r} has written something else"
            remedy = "publish under another writer id"
            raise PositionRefused(msg, stream=name, remedy=remedy)
        if len(position) > len(self._inputs):
            msg = (
                f"{len(position)} inputs were published under the writer id "
                f"{self.writer_id!r}, {len(self._inputs)} are given"
            )
            remedy = "give the same inputs in the same order, or another writer id"
            raise PositionRefused(msg, stream=name, remedy=remedy)
        for partition, offset in position.items():
            one = self._inputs[partition.id]
            one.skip(offset, position.incarnations[partition])
        return sum(position.values())

    def _settle_schema(self, stop: threading.Event) -> pa.Schema | None:
        """What rows will have: declared, else the stream's, else the first input's."""
        known = self._sink.schema
        if known is not None and known.equals(envelope_schema()):
            known = None  # of messages: the encoder, or `value`, decides
        expected = self._declared or known
        if expected is not None:
            self._expect(expected)
        if self._declared is not None:
            return self._declared
        while not stop.is_set():
            with self._naming_columns():
                found = self._inputs[0].columns(_TURN)
            if found is not None:
                self._expect(found)  # a guess holds for all that follows
                return found
        return None

    @contextmanager
    def _naming_columns(self) -> Iterator[None]:
        """Add to errors of an input the columns of the topic, which it was read by."""
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
        names = [name for name in schema.names if name not in SPECIAL]
        unknown = [name for name in names if name not in known.names]
        missing = [field for field in known if field.name not in names]
        if not unknown and all(field.nullable for field in missing):
            return
        found = [("unknown", unknown), ("missing", [field.name for field in missing])]
        told = "; ".join(
            f"{kind}: {', '.join(map(repr, some))}" for kind, some in found if some
        )
        config = self._sink.config
        msg = f"the columns do not fit the topic {config.topic!r}: {told}"
        remedy = "rename the columns, or publish to another topic; this one has "
        remedy += columns_of(known)
        raise SchemaMismatch(msg, stream=config.name, remedy=remedy)

    def _expect(self, schema: pa.Schema) -> None:
        for one in self._inputs:
            one.expect(schema)

    def _spread(self, schema: pa.Schema) -> int | None:
        """Over how many partitions batches go in turn; None where something decides."""
        count = self._sink.partition_count()
        decided = {"_partition", "_key", "_topic"} & set(schema.names)
        keys = self._sink.config.get("producer.key.columns")
        return None if count == 1 or decided or keys else count

    def _promise(self) -> Verdict:
        verdict = self._sink.guarantee(writer_id=self.writer_id)
        if all(one.size is not None for one in self._inputs):
            return verdict
        reason = "as far as standard input brings the same bytes again"
        return combine(verdict, Verdict(Guarantee.EXACTLY_ONCE, (reason,)))


_PARTITION: Final = pa.field("_partition", pa.int32(), nullable=False)
