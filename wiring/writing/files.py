"""Writes an epoch as files that another program writes, such as Spark."""

from __future__ import annotations

import uuid
from contextlib import ExitStack
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, cast, final

from streamfactory.arrowlog.stages import FileStage
from streamfactory.spi import (
    CommitMessage,
    MisuseError,
    StorageFailed,
    StreamError,
    Summary,
    TopicNotFound,
    Unsupported,
    WriteContext,
)
from streamfactory.wiring.core.guard import log
from streamfactory.wiring.decoding.deadletters import varying_columns
from streamfactory.wiring.metrics.registry import registry
from streamfactory.wiring.writing.changes import change_column
from streamfactory.wiring.writing.counters import SinkTally, WriteCounters
from streamfactory.wiring.writing.counting import PartitionCounts
from streamfactory.wiring.writing.summary import Summing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from streamfactory.arrowlog import LogProducerFactory
    from streamfactory.arrowlog.log import WritableLog
    from streamfactory.arrowlog.values import Staged
    from streamfactory.spi import Verdict, WriteKind
    from streamfactory.wiring.writing.producer import Producer
    from streamfactory.wiring.writing.writer import Target

__all__ = ["FileStage", "FileWriter", "FileWriters"]

_REMEDY = 'write it with format("streamfactory")'
_FORMAT = "segment.format"
_PARQUET = "parquet"


@final
class FileWriters:
    """Creates the `FileWriter` of each epoch of a sink.

    Args:
        producer: Calls the backend.
        target: Returns the schemas of rows of a schema.
        guarantee: Returns the guarantee of a writer id.
    """

    def __init__(
        self,
        producer: Producer,
        target: Callable[[pa.Schema], Target],
        guarantee: Callable[..., Verdict],
    ) -> None:
        self._producer = producer
        self._target = target
        self._guarantee = guarantee

    def schema(self, rows: pa.Schema) -> pa.Schema:
        """Return the schema of the files for rows of a schema; creates nothing.

        Raises:
            Unsupported: misuse; the sink takes no such files.
            SchemaMismatch: permanent; rows of this schema do not fit the sink.
        """
        _check_place(self._producer)
        target = self._target(rows)
        _check_topic(self._producer, target)
        return target.stored

    def writer(
        self, schema: pa.Schema, *, writer_id: str | None, epoch: int, kind: WriteKind
    ) -> FileWriter:
        """Create the writer of an epoch. The caller closes it.

        Creates the topic, if there is none.

        Args:
            schema: Schema of the rows, with the framework's columns.
            writer_id: As for `Sink.writer`.
            epoch: As for `Sink.writer`.
            kind: As for `Sink.writer`.

        Raises:
            GuaranteeRefused: config.
            StreamError: See `schema`.
        """
        self._guarantee(writer_id=writer_id)
        stored = self.schema(schema)
        attempt = uuid.uuid4().hex
        context = WriteContext(writer_id, epoch, 0, attempt, kind, stored)
        return FileWriter(self._producer, context, stored)


@final
class FileWriter:
    """The rows of one attempt, in files that another program writes. One thread.

    Args:
        producer: Calls the backend, whose factory is one of a log.
        context: The attempt.
        schema: Schema of the files.
    """

    def __init__(
        self, producer: Producer, context: WriteContext, schema: pa.Schema
    ) -> None:
        self._producer = producer
        self._context = context
        self.schema = schema
        """Of the files."""
        self._compared = producer.compares(context)
        factory = cast("LogProducerFactory", producer.factory)
        self._log: WritableLog = producer.call(lambda: factory.log(schema))
        self._stage: FileStage | None = None
        self.written: tuple[PartitionCounts, ...] = ()
        """What was written to each partition, once it is committed."""
        self.counters = WriteCounters()
        tally = SinkTally(producer.config.name, self.counters)
        self._end_metrics = registry.track(self, tally)

    @property
    def drains(self) -> bool:
        """Whether rows need only be counted: the epoch is committed already."""
        return not self._compared and self._producer.has_epoch(self._context)

    def begin(self) -> FileStage:
        """Begin to stage: the program creates the folder of the stage and writes."""
        topic, attempt = self._log, self._context.attempt
        self._stage = self._producer.call(lambda: topic.stage_files(attempt))
        return self._stage

    def names(self, within: str = "") -> Sequence[str]:
        """See `FileStage.names`."""
        stage = self._begun()
        return self._producer.call(lambda: stage.names(within))

    def commit(self, files: Sequence[tuple[int, str]], rows: int) -> CommitMessage:
        """End the attempt; pass the returned message to the committer.

        The files are the committer's from then on. After an error they are removed.

        Args:
            files: See `FileStage.seal`.
            rows: How many rows the program has written.

        Raises:
            StorageFailed: permanent; the files have another number of rows.
            StreamError: See `FileStage.seal`.
        """
        stage = self._begun()
        sealed: Staged | None = None
        began = perf_counter()
        try:
            sealed = self._producer.call(lambda: stage.seal(files))
            _check_rows(stage, rows)
            summary = self._summary(stage)
        except BaseException:
            self.counters.failures += 1
            self._discard(sealed)
            raise
        finally:
            self.counters.seconds += perf_counter() - began
        topic = self._producer.config.topic
        self.written = tuple(
            PartitionCounts(topic, partition, writes=count, size=size)
            for partition, (count, size) in sorted(stage.counts.items())
        )
        self.counters.rows += rows
        self.counters.bytes += sum(one.size for one in self.written)
        self.counters.batches += len(sealed.files)
        payload = {"attempt": sealed.attempt, "files": [dict(f) for f in sealed.files]}
        return self._message(summary, payload)

    def drained(self, rows: int) -> CommitMessage:
        """Return the message of an attempt whose rows were only counted."""
        self.counters.rows += rows
        self.counters.drained += rows
        return self._message(Summary(rows), None, drained=True)

    def close(self) -> None:
        """Remove what the program has written, unless `commit` has ended the attempt.

        May be called twice.
        """
        with ExitStack() as last:
            last.callback(self._end_metrics)
            stage, self._stage = self._stage, None
            if stage is not None:
                self._producer.call(stage.discard)

    def _discard(self, sealed: Staged | None) -> None:
        """Remove sealed files after a failure, which is raised; log another one."""
        if sealed is None:
            return
        try:
            self._producer.call(lambda: self._log.discard(sealed))
        except StreamError as error:  # the sweep removes them later
            log.warning("stream %r: %s", self._producer.config.name, error)

    def _begun(self) -> FileStage:
        if self._stage is None:
            msg = "the attempt has not begun, or was aborted"
            raise MisuseError(msg, stream=self._producer.config.name)
        return self._stage

    def _summary(self, stage: FileStage) -> Summary:
        if not self._compared:
            return Summary(_rows_of(stage))
        summing = Summing(content=True, without=varying_columns(self.schema))
        for rows in stage.batches():
            summing.add(rows, {})
        return summing.total()

    def _message(
        self, summary: Summary, payload: object, *, drained: bool = False
    ) -> CommitMessage:
        context = replace(self._context, schema=None)
        digest = self._producer.config_digest
        return CommitMessage(context, summary, payload, digest, drained=drained)


def _rows_of(stage: FileStage) -> int:
    return sum(rows for rows, _ in stage.counts.values())


def _check_rows(stage: FileStage, rows: int) -> None:
    found = _rows_of(stage)
    if found != rows:
        msg = f"{rows} rows were written, but the files in {stage.folder} have {found}"
        remedy = "use a path that is one folder for all executors and the driver"
        if "://" in stage.folder:
            remedy = "have the program write to the store that storage.endpoint names"
        raise StorageFailed(msg, remedy=remedy)


def _check_place(producer: Producer) -> None:
    from streamfactory.arrowlog import LogProducerFactory

    config = producer.config
    if not isinstance(producer.factory, LogProducerFactory) or _FORMAT not in config:
        msg = f"streams of type {config.type} are not stored in Parquet files"
        raise Unsupported(msg, stream=config.name, remedy=_REMEDY)
    if change_column(config) is not None:
        msg = "rows that are changes are turned into messages, one by one"
        raise Unsupported(msg, stream=config.name, remedy=_REMEDY)


def _check_topic(producer: Producer, target: Target) -> None:
    """Refuse a topic of other rows or segments; creates nothing."""
    config, factory = producer.config, cast("LogProducerFactory", producer.factory)
    if target.stored.names == ["value"] and "_key" in target.carries:
        msg = f"topic {config.topic!r} has undecoded messages, which need an encoder"
        raise Unsupported(msg, stream=config.name, remedy=_REMEDY)
    try:
        there = producer.ask("open the topic", factory.log)
    except TopicNotFound:
        if config[_FORMAT] == _PARQUET:
            return
        msg = f"topic {config.topic!r} would be created with "
        msg += f"{_FORMAT}={config[_FORMAT]}"
        remedy = f"set stream.{config.type}.{_FORMAT}=parquet"
        raise Unsupported(msg, stream=config.name, remedy=remedy) from None
    producer.call(there.check_files)
