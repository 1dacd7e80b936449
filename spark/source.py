"""The data source and its readers."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)

from streamfactory.spark.catalogues import Home
from streamfactory.spark.definition import configured_by
from streamfactory.spark.failures import translate_errors
from streamfactory.spark.shipping import Shipped
from streamfactory.spark.tasks import read
from streamfactory.spark.types import arrow_schema, spark_schema
from streamfactory.spark.versions import (
    ADMISSION,
    AvailableNowMixin,
    without_admission,
)
from streamfactory.spark.workers import prepare_worker
from streamfactory.spi import SchemaMismatch
from streamfactory.wiring.config.settled import load_plugins
from streamfactory.wiring.controls.control import Control
from streamfactory.wiring.controls.states import Controls
from streamfactory.wiring.core.guard import log
from streamfactory.wiring.core.throttle import Throttle
from streamfactory.wiring.microbatch import (
    BatchOffset,
    Planner,
    Range,
    check_batch,
    check_shared,
    check_stream,
)
from streamfactory.wiring.reading.acknowledging import Acknowledger
from streamfactory.wiring.reading.progress import ProgressGroup
from streamfactory.wiring.reading.source import Source
from streamfactory.wiring.receiving.embedded import open_source

if TYPE_CHECKING:
    from collections.abc import Iterator, MutableMapping, Sequence

    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

    from streamfactory.spark.arrangement import Arrangement
    from streamfactory.spark.sink import BatchWriter, MicroBatchWriter
    from streamfactory.spi import StreamConfig


_METADATA_REMEDY: Final = "metadata.columns=true adds _topic, _partition, _offset ..."


class StreamFactorySource(DataSource):
    """``format("streamfactory")``.

    Keeps only the validated configuration, in which secrets are references, and what
    the stream's schema was taken from.
    """

    HOME: ClassVar[Home] = Home()
    """Where the program that registered the source looks for streams."""
    _opening: bytes | None = None
    """See `Source.opening`: the query reads the columns that its schema names."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__({})
        prepare_worker()
        with translate_errors():
            configured, self._arranged = configured_by(options, self.HOME)
            self._config = configured.config

    def __setstate__(self, state: dict[str, Any]) -> None:
        prepare_worker()
        vars(self).update(state)

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        return "streamfactory"

    def schema(self) -> StructType:
        """The stream's schema, including metadata columns."""
        with translate_errors():
            configured = load_plugins(self._config)
            source = open_source(configured, aside=False)
            try:
                self._opening = source.opening
                return spark_schema(source.schema)
            finally:
                source.close()

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of a batch, by the start and end options."""
        with translate_errors():
            check_batch(self._config)
        return BatchReader(self._config, schema, opening=self._opening)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """A reader of micro-batches."""
        with translate_errors():
            check_stream(self._config)
        if not ADMISSION:
            log.warning("stream %r: %s", self._config.name, without_admission())
        return MicroBatchReader(
            self._config, schema, self._arranged, opening=self._opening
        )

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """A writer of a batch, which appends or replaces all rows."""
        from streamfactory.spark.sink import BatchWriter, check_sink

        arranged = self._arranged
        with translate_errors():
            check_sink(
                self._config,
                schema,
                overwrite=overwrite,
                streaming=False,
                repeated=arranged is not None and arranged.streaming,
            )
        return BatchWriter(self._config, schema, overwrite=overwrite, arranged=arranged)

    def streamWriter(  # noqa: N802
        self,
        schema: StructType,
        overwrite: bool,
    ) -> MicroBatchWriter:
        """A writer of epochs; ``complete`` output replaces all rows each time."""
        from streamfactory.spark.sink import MicroBatchWriter, check_sink

        with translate_errors():
            check_sink(self._config, schema, overwrite=overwrite, streaming=True)
        return MicroBatchWriter(
            self._config, schema, overwrite=overwrite, arranged=self._arranged
        )


class RangePartition(InputPartition):
    """The range of one task, and what its columns were when the driver planned it.

    Spark ships a reader before it plans: only partitions carry what a plan has found.
    """

    value: Range

    def __init__(
        self, value: Range, opening: bytes | None, added: frozenset[str]
    ) -> None:
        super().__init__(value)
        self.opening = opening
        self.added = added


class _Reading(Shipped):
    """Common part of batch and stream readers: plans on the driver, reads in tasks."""

    def __init__(
        self,
        config: StreamConfig,
        schema: StructType,
        arranged: Arrangement | None = None,
        opening: bytes | None = None,
    ) -> None:
        self._config = config
        self._schema = schema
        self._arranged = arranged
        self._opening = opening
        self._planner: Planner | None = None
        self._source: Source | None = None

    def __getstate__(self) -> dict[str, Any]:
        kept = ("_config", "_schema", "_arranged", "_opening")
        return {name: getattr(self, name) for name in kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**{key[1:]: value for key, value in state.items()})  # type: ignore[misc]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range. In a task."""
        if not isinstance(partition, RangePartition):
            return  # Spark creates a task even without ranges
        schema, opening = arrow_schema(self._schema), partition.opening
        with translate_errors():
            yield from read(
                self._config, partition.value, schema, opening, added=partition.added
            )

    def _plan(self) -> Planner:
        """The planner. On the driver."""
        if self._planner is None:
            configured = load_plugins(self._config)
            self._source = open_source(configured, aside=False, opening=self._opening)
            check_shared(self._source)
            self._check_schema(self._source.schema)
            self._follow_rate(self._source)
            self._planner = Planner(self._source)
            if self._arranged is not None and self._arranged.available_now:
                self._planner.prepare_for_available_now()
        return self._planner

    def _follow_rate(self, source: Source) -> None:
        """Limit batches by the rate that users ask of the pipeline."""
        arranged = self._arranged
        if arranged is None or arranged.job is None or arranged.controls is None:
            return
        control = Control(arranged.job, Controls(Path(arranged.controls)))
        source.throttle = Throttle(partial(control.rate, source.rate), source.clock)

    def _partitions(self, ranges: Sequence[Range]) -> Sequence[InputPartition]:
        assert self._source is not None  # it has planned them
        opening, added = self._source.opening, self._source.added_columns
        return [RangePartition(one, opening, added) for one in ranges]

    def _check_schema(self, found: pa.Schema) -> None:
        """Refuse a stream that lacks columns of the query, or has other types.

        Nullability is checked per row: a query may be stricter than the stream.
        """
        for field in self._schema:
            index = found.get_field_index(field.name)
            if index < 0:
                msg = (
                    f"the stream has no column {field.name!r}, which the query reads; "
                )
                msg += f"it has {', '.join(found.names)}"
                remedy = _METADATA_REMEDY if field.name.startswith("_") else None
                raise SchemaMismatch(msg, stream=self._config.name, remedy=remedy)
            there = spark_schema(pa.schema([found.field(index)]))[0]
            has, wants = there.dataType.simpleString(), field.dataType.simpleString()
            if has != wants:
                msg = f"column {field.name!r} has the type {has} in the stream and "
                msg += f"{wants} in the query"
                raise SchemaMismatch(msg, stream=self._config.name)

    def _check_again(self) -> None:
        """Check the schema again: new or recreated topics may have another one."""
        source = Source(load_plugins(self._config), aside=False)
        try:
            self._check_schema(source.schema)
        finally:
            source.close()

    def _close(self) -> None:
        source, self._source, self._planner = self._source, None, None
        if source is not None:
            source.close()


class BatchReader(_Reading, DataSourceReader):
    """Reader of a batch query."""

    def partitions(self) -> Sequence[InputPartition]:
        """The ranges of the batch."""
        with translate_errors():
            try:
                return self._partitions(self._plan().batch())
            finally:
                self._close()


class MicroBatchReader(_Reading, DataSourceStreamReader, AvailableNowMixin):
    """Reader of a streaming query."""

    _progress: ProgressGroup | None = None
    _acknowledger: Acknowledger | None = None
    _reached: dict[str, Any] | None = None
    """The last offset that Spark has got or named: the start of the next batch, for a
    PySpark that does not pass it."""
    _initial: BatchOffset | None = None
    """The start of the query, if it is new."""
    _parsed: tuple[tuple[dict[str, Any], BatchOffset], ...] = ()
    """The last offsets, as Spark has them and parsed: it passes each of them to
    several calls, and to all polls until there are rows."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Start offset of a new query."""
        with translate_errors():
            if self._initial is None:
                self._initial = self._plan().initial()
            found = self._initial.to_plain()
            self._reached = self._reached or found
            return found

    def latestOffset(  # noqa: N802
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """End offset of the next batch; before 4.2 Spark passes nothing."""
        with translate_errors():
            before = self._reached if start is None else start
            self._reached = (
                self._first() if before is None else self._next(before, limit)
            )
            return self._reached

    def _first(self) -> dict[str, Any]:
        """The end of the first batch of a run, before Spark has passed an offset.

        The query is new; or it is not, and has `Trigger.AvailableNow`, whose wrapper
        asks for the end before Spark reads the checkpoint.
        """
        self._initial = self._plan().initial()
        return self._plan().first(self._initial).to_plain()

    def _next(self, start: dict[str, Any], limit: ReadLimit | None) -> dict[str, Any]:
        # Compared by name, because managed platforms load two copies of PySpark.
        limited = type(limit).__name__ != "ReadAllAvailable"
        before = self._offset(start)
        if self._arranged is not None and self._arranged.draining:
            self._plan().drain()
        # Spark calls `commit` for a batch only when there is a next one. It asks
        # for another end after every batch, and by then the start is committed.
        self._publish(before)
        end = self._plan().latest(before, limited=limited)
        if end is before:
            return start
        if end.begun and before.at is not None:
            self._check_again()
        plain = end.to_plain()
        self._keep(plain, end)
        return plain

    def _offset(self, plain: dict[str, Any]) -> BatchOffset:
        for kept, offset in self._parsed:
            if kept == plain:
                return offset
        return self._keep(plain, BatchOffset.from_plain(plain))

    def _keep(self, plain: dict[str, Any], offset: BatchOffset) -> BatchOffset:
        self._parsed = (*self._parsed[-1:], (plain, offset))
        return offset

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """A placeholder if the configuration limits batches, which we apply ourselves.

        Spark passes it back, except for triggers that read all available rows.
        """
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

        with translate_errors():
            return (
                ReadMaxRows(2**63 - 1) if self._plan().limited else ReadAllAvailable()
            )

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end offset for Trigger.AvailableNow."""
        with translate_errors():
            self._plan().prepare_for_available_now()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The latest of all partitions, for progress reports."""
        with translate_errors():
            newest = self._plan().newest
            return None if newest is None else BatchOffset(newest).to_plain()

    def partitions(
        self, start: dict[str, Any], end: dict[str, Any]
    ) -> Sequence[InputPartition]:
        """The ranges of a batch. Pure.

        A PySpark without admission control calls it with one offset twice at a
        restart, to say how far the query is.
        """
        with translate_errors():
            self._reached = end
            ranges = self._plan().ranges(self._offset(start), self._offset(end))
            return self._partitions(ranges)

    def commit(self, end: dict[str, Any]) -> None:
        """Acknowledge the end of a batch, and commit it to ``progress.group``."""
        with translate_errors():
            self._publish(self._offset(end))

    def _publish(self, done: BatchOffset) -> None:
        """Report a position that Spark has committed; Spark's own log is decisive.

        An initial offset has no position, so a start is never acknowledged.
        """
        if self._progress is None or self._acknowledger is None:
            self._plan()
            assert self._source is not None
            self._progress = ProgressGroup(self._source)
            self._acknowledger = Acknowledger(self._source)
        self._acknowledger.acknowledge(done.at)
        self._progress.publish(done.at)

    def stop(self) -> None:
        """Close the driver's source."""
        self._close()
