"""The data sink: tasks stage rows and the driver commits, each epoch exactly once."""

from __future__ import annotations

import json
import logging
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from streamfactory.spark.failures import translate_errors
from streamfactory.spark.shipping import Shipped
from streamfactory.spark.types import arrow_schema
from streamfactory.spark.versions import StreamArrowWriter
from streamfactory.spi import (
    CommitMessage,
    ConfigError,
    EpochInThePast,
    Guarantee,
    MisuseError,
    StreamCommitter,
    StreamError,
    Unsupported,
    WriteKind,
)
from streamfactory.wiring.config.settled import load_plugins
from streamfactory.wiring.core.guard import log
from streamfactory.wiring.writing.sink import Sink

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from streamfactory.spark.arrangement import Arrangement
    from streamfactory.spark.checkpoints import Ledger
    from streamfactory.spi import StreamConfig, Verdict
    from streamfactory.wiring.writing.counting import PartitionCounts

_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"
_NOT_NULL: Final = ("nullable", "containsNull", "valueContainsNull")
_REWOUND: Final = (
    "the checkpoint is older than the committed epochs: continue with the newest "
    "checkpoint, or set another writer.id to write the epochs again"
)


@dataclass(frozen=True, slots=True)
class TaskMessage(WriterCommitMessage):
    """The commit message of one task."""

    message: CommitMessage
    written: tuple[PartitionCounts, ...] = ()
    """What the task wrote; empty if the sink has the epoch already."""


def check_sink(
    config: StreamConfig,
    schema: StructType,
    *,
    overwrite: bool,
    streaming: bool,
    repeated: bool = False,
) -> Verdict:
    """Refuse invalid writes before anything is written; returns the guarantee.

    Args:
        config: The sink's configuration.
        schema: Schema of the rows.
        overwrite: Whether the rows replace existing ones.
        streaming: Whether a streaming query writes, instead of a batch.
        repeated: Whether a batch write is an epoch of a query that was checked before.

    Raises:
        Unsupported: misuse; the stream is not shared between processes, or cannot be
            replaced atomically.
        ConfigError: config; a batch has only one of ``writer.id`` and ``epoch``, or a
            query has an ``epoch``.
        GuaranteeRefused: config; ``guarantee`` requires more.
        SchemaMismatch: permanent; the rows do not fit the existing schema.
    """
    with opened_sink(config) as sink:
        return check_opened(
            sink,
            schema,
            overwrite=overwrite,
            streaming=streaming,
            repeated=repeated,
        )


@contextmanager
def opened_sink(config: StreamConfig) -> Iterator[Sink]:
    """Open a sink in this process."""
    sink = Sink(load_plugins(config, reads=False))
    try:
        yield sink
    finally:
        sink.close()


def check_opened(
    sink: Sink,
    schema: StructType,
    *,
    overwrite: bool,
    streaming: bool,
    repeated: bool = False,
) -> Verdict:
    """Check a sink that is open; see `check_sink`."""
    config = sink.config
    _check_epoch(config, streaming=streaming)
    if not sink.claims.shared:
        msg = f"other processes do not see streams of type {config.type}"
        remedy = "write to a stream of type file"
        raise Unsupported(msg, stream=config.name, remedy=remedy)
    if overwrite:
        _check_replaces(sink)
    # Without writer.id, a query is identified by the id of its checkpoint.
    who = config.get("writer.id") or ("query" if streaming else None)
    verdict = sink.guarantee(writer_id=who)
    if verdict.guarantee is not Guarantee.EXACTLY_ONCE:
        # Spark calls this for each epoch of a query: warn only for batches.
        level = logging.INFO if streaming or repeated else logging.WARNING
        log.log(level, "stream %r: this write is %s", config.name, verdict)
    sink.check(arrow_schema(nullable(schema)))
    return verdict


def _check_replaces(sink: Sink) -> None:
    author = sink.factory.create_committer(None)
    try:
        if type(author).replace is StreamCommitter.replace:
            msg = f"{sink.config.type} cannot replace at once what is there"
            remedy = "append, or use output mode append"
            raise Unsupported(msg, stream=sink.config.name, remedy=remedy)
    finally:
        author.close()


def _check_epoch(config: StreamConfig, *, streaming: bool) -> None:
    if streaming and "epoch" in config:
        msg = "Spark numbers the epochs of a streaming query: leave epoch out"
        raise ConfigError(msg, stream=config.name)
    if streaming or ("writer.id" in config) == ("epoch" in config):
        return
    there, missing = "writer.id", "epoch"
    if missing in config:
        there, missing = missing, there
    msg = f"{there} and {missing} belong together: {missing} is missing"
    raise ConfigError(msg, stream=config.name, remedy=f"set {missing} too, or neither")


def nullable(schema: StructType) -> StructType:
    """The schema with everything nullable, as Spark's own sinks do.

    An expression that is not nullable today may be tomorrow.
    """

    def relaxed(found: dict[str, Any]) -> dict[str, Any]:
        return {**found, **{key: True for key in _NOT_NULL if key in found}}

    return StructType.fromJson(json.loads(schema.json(), object_hook=relaxed))


class _Writing(Shipped):
    """Common part of batch and streaming writers."""

    kind: WriteKind = WriteKind.BATCH

    def __init__(
        self,
        config: StreamConfig,
        schema: StructType,
        *,
        overwrite: bool,
        arranged: Arrangement | None = None,
    ) -> None:
        self._config = config
        self._schema = nullable(schema)
        self._overwrite = overwrite
        self._name = None if arranged is None else arranged.sink
        self._ledger = None if arranged is None else arranged.ledger
        if arranged is not None and arranged.streaming:
            self.kind = WriteKind.STREAMING

    def _stage(
        self, batches: Iterator[pa.RecordBatch], writer_id: str | None, epoch: int
    ) -> TaskMessage:
        """Write the rows of one task."""
        context = TaskContext.get()
        task = 0 if context is None else context.partitionId()
        with ExitStack() as stack:
            sink = stack.enter_context(opened_sink(self._config))
            writer = stack.enter_context(
                sink.writer(
                    arrow_schema(self._schema),
                    writer_id=writer_id,
                    epoch=epoch,
                    task=task,
                    kind=self.kind,
                )
            )
            for batch in batches:
                writer.write(batch)
            return TaskMessage(writer.commit(), writer.written)

    def _decide(
        self,
        messages: Sequence[WriterCommitMessage | None],
        writer_id: str | None,
        epoch: int,
        *,
        made: bool,
    ) -> None:
        """Commit or abort. On the driver."""
        found = [
            one.message if isinstance(one, TaskMessage) else None for one in messages
        ]
        with ExitStack() as stack:
            stack.enter_context(explained_rewind(self.kind))
            sink = stack.enter_context(opened_sink(self._config))
            committer = sink.committer(writer_id=writer_id, kind=self.kind)
            stack.callback(committer.close)
            self._record(messages, epoch, made=made)
            if made:
                committer.commit(epoch, found, replace_all=self._overwrite)
            else:
                committer.abort(epoch, found)

    def _record(
        self,
        messages: Sequence[WriterCommitMessage | None],
        epoch: int,
        *,
        made: bool,
    ) -> None:
        done = [one for one in messages if isinstance(one, TaskMessage)]
        if any(one.message.drained for one in done):
            return  # the record of a repeated epoch is there already
        counts = [found for one in done for found in one.written] if made else None
        record_epoch(self._ledger, self._config.name, epoch, counts)


def record_epoch(
    ledger: Ledger | None,
    stream: str,
    epoch: int,
    written: Sequence[PartitionCounts] | None,
) -> None:
    """Record what an epoch writes, before it is committed.

    A failure to do so is logged, and does not stop the epoch.

    Args:
        ledger: Where; None if epochs of this sink are not recorded.
        stream: Name of the stream, for the log.
        epoch: The epoch.
        written: What was written to partitions; None for an attempt that failed.
    """
    if ledger is None:
        return
    try:
        if written is None:
            ledger.record_failure(epoch)
        else:
            ledger.record(epoch, written)
    except StreamError as error:
        log.warning("stream %r: %s", stream, error)


@contextmanager
def explained_rewind(kind: WriteKind) -> Iterator[None]:
    """Explain what `EpochInThePast` means for a query."""
    try:
        yield
    except EpochInThePast as error:
        if kind is WriteKind.STREAMING:
            error.remedy = _REWOUND
        raise


class BatchWriter(_Writing, DataSourceArrowWriter):
    """Writes a batch; idempotent only with explicit ``writer.id`` and ``epoch``."""

    @property
    def _who(self) -> tuple[str | None, int]:
        return self._config.get("writer.id"), self._config.get("epoch", 0)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of one task. In a task."""
        with translate_errors():
            return self._stage(iterator, *self._who)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Make all rows visible. On the driver."""
        with translate_errors():
            self._decide(messages, *self._who, made=True)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Drop staged rows. On the driver."""
        with translate_errors():
            self._decide(messages, *self._who, made=False)


class MicroBatchWriter(_Writing, StreamArrowWriter):
    """Writes the epochs of a streaming query exactly once, by the id of the query."""

    kind = WriteKind.STREAMING

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of one task. In a task."""
        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty(_QUERY)
        batch = None if context is None else context.getLocalProperty(_BATCH)
        with translate_errors():
            if query is None or batch is None:
                msg = "Spark does not report the query and the batch of this task"
                raise MisuseError(msg, stream=self._config.name)
            return self._stage(iterator, self._writer_id(query), int(batch))

    def commit(
        self,
        messages: Sequence[WriterCommitMessage | None],
        batchId: int,  # noqa: N803
    ) -> None:
        """Commit the epoch.

        On the driver, which gets the writer id from the messages.
        """
        with translate_errors():
            self._decide(messages, self._writer_of(messages), batchId, made=True)

    def abort(
        self,
        messages: Sequence[WriterCommitMessage | None],
        batchId: int,  # noqa: N803
    ) -> None:
        """Drop staged rows. On the driver."""
        if any(isinstance(one, TaskMessage) for one in messages):
            with translate_errors():
                self._decide(messages, self._writer_of(messages), batchId, made=False)

    def _writer_id(self, query: str) -> str:
        given: str | None = self._config.get("writer.id")
        sink = self._name or self._config.get("topic.name", self._config.name)
        return given or f"{query}/{sink}"

    def _writer_of(self, messages: Sequence[WriterCommitMessage | None]) -> str:
        for one in messages:
            if isinstance(one, TaskMessage) and one.message.context.writer_id:
                return one.message.context.writer_id
        msg = "no task has sent a message, so the writer is not known"
        raise MisuseError(msg, stream=self._config.name)
