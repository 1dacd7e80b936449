"""Writes frames to topics of Parquet segments by Spark's own Parquet writer.

`save_frame` is `streamfactory.spark.save`; `save_epoch` writes a batch of a pipeline.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from streamfactory.spark.catalogues import Home
from streamfactory.spark.fitting import check_stored, fitted, quoted
from streamfactory.spark.keys import KEY, KeyRouter, key_partition
from streamfactory.spark.parquet_files import (
    PARTITION,
    find_files,
    location,
    write_files,
)
from streamfactory.spark.sink import (
    check_opened,
    explained_rewind,
    nullable,
    opened_sink,
    record_epoch,
)
from streamfactory.spark.types import arrow_schema
from streamfactory.spi import (
    MessageTooLarge,
    MisuseError,
    Role,
    SchemaMismatch,
    StreamError,
    Unsupported,
    WriteKind,
)
from streamfactory.wiring.config.loading import load
from streamfactory.wiring.core.guard import log

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

    from streamfactory.spark.checkpoints import Ledger
    from streamfactory.spi import CommitMessage, StreamConfig
    from streamfactory.wiring.config.loading import StreamLike
    from streamfactory.wiring.writing.files import FileWriter
    from streamfactory.wiring.writing.sink import Sink

_MOST_ROUTED: Final = 64
"""Partitions for which a task has a file open at the same time."""
_REMEDY: Final = 'write it with format("streamfactory")'


@dataclass(frozen=True, slots=True)
class _Epoch:
    """Identifies an atomic write."""

    writer_id: str | None
    number: int
    kind: WriteKind = WriteKind.BATCH
    replaces: bool = False
    """Whether the rows replace all earlier ones."""
    ledger: Ledger | None = None
    """Where commits of the sink are recorded; None if they are not."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """How the rows of a frame are written."""

    schema: pa.Schema
    """Of the frame, in Arrow."""
    columns: list[Column]
    """Of the topic; the last one is the partition, if rows are routed."""
    partitions: int
    routed: bool


def save_frame(
    frame: DataFrame, named: StreamLike, writer_id: str | None, epoch: int | None
) -> bool:
    """See `streamfactory.spark.save`."""
    _check_frame(frame)
    given = {"writer.id": writer_id, "epoch": None if epoch is None else str(epoch)}
    options = {key: value for key, value in given.items() if value is not None}
    config = load(
        named,
        "spark",
        options=options,
        role=Role.WRITE,
        catalogue=Home.of(frame.sparkSession).catalogue(),
    ).config
    location(frame.sparkSession, config.get("path", ""))
    with opened_sink(config) as sink:
        sink.files.schema(arrow_schema(nullable(frame.schema)))
        check_opened(sink, frame.schema, overwrite=False, streaming=False)
        plan = _planned(sink, frame.schema)
        identity = _Epoch(config.get("writer.id"), config.get("epoch", 0))
        return _save(frame, sink, plan, identity)


def refusal(sink: Sink, rows: StructType) -> str | None:
    """Why batches of a query are not saved in a sink; None if they are.

    Args:
        sink: A sink that accepts rows of this schema.
        rows: Schema of the rows.

    Raises:
        StreamError: The sink cannot be reached, for instance.
    """
    try:
        _planned_batch(sink, rows)
    except (Unsupported, SchemaMismatch) as error:
        return error.what
    return None


def save_epoch(
    frame: DataFrame, config: StreamConfig, *, replaces: bool, ledger: Ledger | None
) -> str | None:
    """Save a batch of a query.

    Args:
        frame: The rows.
        config: Of the sink, with the writer id of the query, and the epoch.
        replaces: Whether the rows replace all earlier ones.
        ledger: Where the commit is recorded; None if it is not.

    Returns:
        Why the rows cannot be saved, and nothing was written; None if they were, now or
        before.

    Raises:
        StreamError: See `streamfactory.spark.save`.
    """
    with opened_sink(config) as sink:
        check_opened(
            sink, frame.schema, overwrite=replaces, streaming=False, repeated=True
        )
        try:
            plan = _planned_batch(sink, frame.schema)
        except (Unsupported, SchemaMismatch) as error:
            return error.what
        kind = WriteKind.STREAMING
        epoch = _Epoch(config["writer.id"], config["epoch"], kind, replaces, ledger)
        try:
            with explained_rewind(kind):
                _save(frame, sink, plan, epoch)
        except MessageTooLarge as error:
            # The sink in Python cuts such rows into several batches.
            return error.what
    return None


def _save(frame: DataFrame, sink: Sink, plan: _Plan, epoch: _Epoch) -> bool:
    """Write and commit the rows; return whether this call made the commit."""
    who, number, kind = epoch.writer_id, epoch.number, epoch.kind
    with ExitStack() as stack:
        writer = sink.files.writer(plan.schema, writer_id=who, epoch=number, kind=kind)
        stack.callback(writer.close)
        committer = sink.committer(writer_id=who, kind=kind)
        stack.callback(committer.close)
        if writer.drains:
            # Stateful operators rely on that their rows are read.
            return committer.commit(number, [writer.drained(frame.count())])
        messages = []
        try:
            messages.append(_written(frame, writer, plan))
            record_epoch(epoch.ledger, sink.config.name, number, writer.written)
            return committer.commit(number, messages, replace_all=epoch.replaces)
        except BaseException:
            record_epoch(epoch.ledger, sink.config.name, number, None)
            try:
                committer.abort(number, messages)
            except StreamError as error:  # the sweep removes them later
                log.warning("aborting epoch %d: %s", number, error)
            raise


def _written(frame: DataFrame, writer: FileWriter, plan: _Plan) -> CommitMessage:
    partitions = plan.partitions if plan.routed else 0
    count = write_files(frame.select(*plan.columns), writer.begin(), partitions)
    return writer.commit(find_files(writer, plan.partitions, routed=plan.routed), count)


# --- what is written ------------------------------------------------------------


def _check_frame(frame: DataFrame) -> None:
    """Refuse frames that have no rows to write now.

    Raises:
        MisuseError: misuse; the frame is one of a stream.
        Unsupported: misuse; the session is one of Spark Connect.
    """
    if not hasattr(frame, "_jdf"):
        msg = "save needs a session in this process, not one of Spark Connect"
        raise Unsupported(msg, remedy=_REMEDY)
    if frame.isStreaming:
        msg = "the frame is one of a stream, which has no batch to save"
        remedy = "call save in foreachBatch, or use writeStream"
        raise MisuseError(msg, remedy=remedy)


def _planned(sink: Sink, rows: StructType) -> _Plan:
    """Plan how rows of a schema are written; creates nothing.

    Raises:
        Unsupported: misuse; the sink takes no files of Spark, or not of such rows.
        SchemaMismatch: permanent; a column cannot be stored as the topic has it.
    """
    schema = arrow_schema(nullable(rows))
    stored = sink.files.schema(schema)
    check_stored(stored)
    columns = dict(zip(stored.names, fitted(rows, stored), strict=True))
    partitions = sink.partition_count()
    partition = _partition(sink.config, rows, stored, columns, partitions)
    routed = [] if partition is None else [partition.alias(PARTITION)]
    return _Plan(
        schema, [*columns.values(), *routed], partitions, partition is not None
    )


def _planned_batch(sink: Sink, rows: StructType) -> _Plan:
    """As `_planned`, for a batch of a query.

    Hadoop may have other credentials for an object store than the stream has, so only
    `save`, which names what writes, needs them.
    """
    if "://" in sink.config.get("path", ""):
        msg = "batches of queries are not saved in object stores by Spark's writer"
        raise Unsupported(msg)
    return _planned(sink, rows)


def _partition(
    config: StreamConfig,
    rows: StructType,
    stored: pa.Schema,
    columns: dict[str, Column],
    partitions: int,
) -> Column | None:
    """The partition of each row; None if its task decides (rule W8).

    Raises:
        Unsupported: misuse; there are too many partitions, or PySpark has no functions
            of Arrow.
        SchemaMismatch: permanent; ``_partition`` is not a number, or a column cannot be
            a key.
    """
    names = tuple(config.get("producer.key.columns", ()))
    if PARTITION in rows.names:
        kind = rows[PARTITION].dataType.typeName()
        if kind not in ("byte", "short", "integer", "long"):
            msg = f"column {PARTITION!r} is {kind}, not a whole number"
            raise SchemaMismatch(msg, stream=config.name, remedy="cast it to int")
        partition = quoted(PARTITION)
    elif partitions == 1:
        return None
    elif KEY in rows.names:
        key = arrow_schema(rows).field(KEY)
        router = KeyRouter((), pa.schema([]), partitions)
        partition = key_partition({KEY: quoted(KEY)}, key, router)
    elif names:
        fields = [field for field in stored if field.name in names]
        given = {field.name: columns[field.name] for field in fields}
        router = KeyRouter(names, pa.schema(fields), partitions)
        partition = key_partition(given, None, router)
    else:
        return None
    if partitions > _MOST_ROUTED:
        msg = f"the topic has {partitions} partitions, and a task writes to at most "
        msg += f"{_MOST_ROUTED} at the same time"
        raise Unsupported(msg, stream=config.name, remedy=_REMEDY)
    return partition
