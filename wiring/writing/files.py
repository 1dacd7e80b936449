"""Writes an epoch as files that another program writes, such as Spark."""

from __future__ import annotations

import uuid
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, cast, final

from streamfactory.arrowlog.log import FileStage
from streamfactory.spi import (
    CommitMessage,
    MisuseError,
    StorageFailed,
    StreamError,
    Summary,
    Unsupported,
    WriteContext,
)
from streamfactory.wiring.decoding.deadletters import varying_columns
from streamfactory.wiring.metrics.registry import registry
from streamfactory.wiring.writing.changes import change_column
from streamfactory.wiring.writing.counters import SinkTally, WriteCounters
from streamfactory.wiring.writing.summary import Summing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from streamfactory.arrowlog import LogProducerFactory
    from streamfactory.arrowlog.log import Log, Staged
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

    def check(self) -> None:
        """Refuse a sink that takes no files of other programs; connects to nothing.

        Raises:
            Unsupported: misuse.
        """
        _check_place(self._producer)

    def schema(self, rows: pa.Schema) -> pa.Schema:
        """Return the schema of the files for rows of a schema; creates nothing.

        Raises:
            SchemaMismatch: permanent; rows of this schema do not fit the sink.
        """
        return self._target(rows).stored

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
            Unsupported: misuse; the sink takes no such files.
            GuaranteeRefused: config.
            SchemaMismatch: permanent; rows of this schema do not fit the sink.
        """
        self._guarantee(writer_id=writer_id)
        target = self._target(schema)
        attempt = uuid.uuid4().hex
        context = WriteContext(writer_id, epoch, 0, attempt, kind, target.stored)
        return FileWriter(self._producer, context, target)


@final
class FileWriter:
    """The rows of one attempt, in files that another program writes. One thread.

    Args:
        producer: Calls the backend.
        context: The attempt.
        target: The schemas of the rows.

    Raises:
        Unsupported: misuse; the sink takes no such files.
    """

    def __init__(
        self, producer: Producer, context: WriteContext, target: Target
    ) -> None:
        _check_place(producer)
        _check_topic(producer, target)
        self._producer = producer
        self._context = context
        self.schema: pa.Schema = target.stored
        """Of the files."""
        named = context.writer_id is not None and producer.claims.idempotent
        self._compared = named and producer.config["epoch.mismatch"] == "fail"
        self._log: Log = producer.call(lambda: _log_of(producer, target.stored))
        self._stage: FileStage | None = None
        self._sealed: Staged | None = None
        self.counters = WriteCounters()
        tally = SinkTally(producer.config.name, self.counters)
        self._end_metrics = registry.track(self, tally)

    @property
    def drains(self) -> bool:
        """Whether rows need only be counted: the epoch is committed already."""
        writer_id = self._context.writer_id
        if writer_id is None or self._compared or not self._producer.claims.idempotent:
            return False
        factory = self._producer.factory
        last = self._producer.ask(
            "fetch the last epoch", lambda: factory.fetch_last_commit(writer_id)
        )
        return last is not None and last.epoch >= self._context.epoch

    def begin(self) -> FileStage:
        """Begin to stage: the program creates the folder of the stage and writes."""
        log, attempt = self._log, self._context.attempt
        self._stage = self._producer.call(lambda: log.stage_files(attempt))
        return self._stage

    def names(self, within: str = "") -> Sequence[str]:
        """See `FileStage.names`."""
        stage = self._begun()
        return self._producer.call(lambda: stage.names(within))

    def commit(self, files: Sequence[tuple[int, str]], rows: int) -> CommitMessage:
        """End the attempt; pass the returned message to the committer.

        Args:
            files: See `FileStage.seal`.
            rows: How many rows the program has written.

        Raises:
            StorageFailed: permanent; the files have another number of rows.
            StreamError: See `FileStage.seal`.
        """
        stage = self._begun()
        try:
            sealed = self._sealed = self._producer.call(lambda: stage.seal(files))
            if stage.rows != rows:
                msg = f"{rows} rows were written, but the files in {stage.folder} have "
                remedy = (
                    "use a path that is one folder for all executors and the driver"
                )
                raise StorageFailed(msg + f"{stage.rows}", remedy=remedy)
            summary = self._summary(stage)
        except StreamError:
            self.counters.failures += 1
            self.abort()
            raise
        self.counters.rows += rows
        self.counters.bytes += stage.size
        self.counters.batches += len(sealed.files)
        payload = {"attempt": sealed.attempt, "files": [dict(f) for f in sealed.files]}
        return self._message(summary, payload)

    def drained(self, rows: int) -> CommitMessage:
        """Return the message of an attempt whose rows were only counted."""
        self.counters.rows += rows
        self.counters.drained += rows
        return self._message(Summary(rows), None, drained=True)

    def abort(self) -> None:
        """Remove what was written; may be called after a failure, and twice."""
        stage, sealed = self._stage, self._sealed
        self._stage = self._sealed = None
        if stage is not None:
            self._producer.call(stage.discard)
        if sealed is not None:
            self._producer.call(lambda: self._log.discard(sealed))

    def close(self) -> None:
        """Remove the folder; files that `commit` returned are the committer's."""
        with ExitStack() as last:
            last.callback(self._end_metrics)
            self._sealed = None
            self.abort()

    def _begun(self) -> FileStage:
        if self._stage is None:
            msg = "the attempt has not begun, or was aborted"
            raise MisuseError(msg, stream=self._producer.config.name)
        return self._stage

    def _summary(self, stage: FileStage) -> Summary:
        if not self._compared:
            return Summary(stage.rows)
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


def _check_place(producer: Producer) -> None:
    from streamfactory.arrowlog import LogProducerFactory

    config = producer.config
    if not isinstance(producer.factory, LogProducerFactory) or _FORMAT not in config:
        msg = f"streams of type {config.type} are not stored in Parquet files"
        raise Unsupported(msg, stream=config.name, remedy=_REMEDY)
    if "://" in config["path"]:
        msg = (
            "files are written to a folder that all processes reach by the same path, "
        )
        msg += f"not to {config['path']}"
        raise Unsupported(msg, stream=config.name, remedy=_REMEDY)
    if change_column(config) is not None:
        msg = "rows that are changes are turned into messages, one by one"
        raise Unsupported(msg, stream=config.name, remedy=_REMEDY)


def _check_topic(producer: Producer, target: Target) -> None:
    """Refuse a topic of other rows or segments; creates nothing."""
    config = producer.config
    if target.stored.names == ["value"] and "_key" in target.carries:
        msg = f"topic {config.topic!r} has undecoded messages, which need an encoder"
        raise Unsupported(msg, stream=config.name, remedy=_REMEDY)
    found = producer.ask(
        "fetch the schema", lambda: producer.factory.fetch_schema(config.topic)
    )
    if found is None and config[_FORMAT] != _PARQUET:
        msg = f"topic {config.topic!r} would be created with "
        msg += f"{_FORMAT}={config[_FORMAT]}"
        remedy = f"set stream.{config.type}.{_FORMAT}=parquet"
        raise Unsupported(msg, stream=config.name, remedy=remedy)


def _log_of(producer: Producer, schema: pa.Schema) -> Log:
    factory = cast("LogProducerFactory", producer.factory)
    return factory.log(schema)
