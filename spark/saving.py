"""Writes frames to topics of Parquet segments by Spark's own Parquet writer."""

from __future__ import annotations

import re
import uuid
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812 - as Spark's documentation has it

from streamfactory.spark.fitting import check_stored, fitted, quoted
from streamfactory.spark.sink import check_sink, nullable
from streamfactory.spark.types import arrow_schema
from streamfactory.spi import (
    CorruptData,
    MisuseError,
    Role,
    SchemaMismatch,
    StreamError,
    Unsupported,
    WriteKind,
)
from streamfactory.wiring.config.loading import load, load_again
from streamfactory.wiring.core.guard import log
from streamfactory.wiring.writing.routing import SPECIAL
from streamfactory.wiring.writing.sink import Sink

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from streamfactory.spi import StreamConfig
    from streamfactory.wiring.config.loading import Named
    from streamfactory.wiring.writing.committer import Committer
    from streamfactory.wiring.writing.files import FileStage, FileWriter

_MOST_ROUTED: Final = 64
"""Partitions for which a task has a file open at the same time."""
_PARTITION: Final = "_partition"
_REMEDY: Final = 'write it with format("streamfactory")'
_NAME: Final = re.compile(
    r"part-(\d{1,9})-[0-9a-f-]{36}[-.]c(\d{1,9})(?:\.[0-9a-z]{1,16})?\.parquet"
)
"""Task and number of a file within it, in the names that Spark gives."""
_LANE: Final = re.compile(rf"{_PARTITION}=(-?\d{{1,19}})")
_CODECS: Final = {"none": "none", "lz4": "lz4_raw", "zstd": "zstd"}
_SETTINGS: Final = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.writeLegacyFormat": "false",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.output.committer.class": (
        "org.apache.parquet.hadoop.ParquetOutputCommitter"
    ),
    "spark.sql.sources.commitProtocolClass": (
        "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol"
    ),
}
"""Of the session's copy that writes: they are not options of one write."""
_OPTIONS: Final = {
    # What readers of segments accept, whatever the cluster's configuration has.
    "parquet.enable.dictionary": "false",
    "parquet.writer.version": "PARQUET_1_0",
    "parquet.page.write-checksum.enabled": "true",
    "parquet.statistics.truncate.length": "64",
    "parquet.summary.metadata.level": "NONE",
    "parquet.bloom.filter.enabled": "false",
    # A file appears when its task is committed, and once.
    "mapreduce.fileoutputcommitter.algorithm.version": "1",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}


def save_frame(
    frame: DataFrame, named: Named, writer_id: str | None, epoch: int | None
) -> bool:
    """See `streamfactory.spark.save`."""
    _check_frame(frame)
    given = {"writer.id": writer_id, "epoch": None if epoch is None else str(epoch)}
    options = {key: value for key, value in given.items() if value is not None}
    config = load(named, "spark", options=options, role=Role.WRITE).config
    who, number = config.get("writer.id"), config.get("epoch", 0)
    with ExitStack() as stack:
        sink = Sink(load_again(config, reads=False))
        stack.callback(sink.close)
        sink.files.check()
        check_sink(config, frame.schema, overwrite=False, streaming=False)
        schema = arrow_schema(nullable(frame.schema))
        check_stored(sink.files.schema(schema))
        routed = _is_routed(frame, config, sink.partition_count())
        writer = sink.files.writer(
            schema, writer_id=who, epoch=number, kind=WriteKind.BATCH
        )
        stack.callback(writer.close)
        rows = _prepared(frame, writer, config, routed=routed)
        committer = sink.committer(writer_id=who, kind=WriteKind.BATCH)
        stack.callback(committer.close)
        partitions = sink.partition_count()
        return _commit(rows, writer, committer, number, partitions, routed=routed)


def _commit(
    rows: DataFrame,
    writer: FileWriter,
    committer: Committer,
    epoch: int,
    partitions: int,
    *,
    routed: bool,
) -> bool:
    """Write and commit the rows; return whether this call made the commit."""
    if writer.drains:
        return committer.commit(epoch, [writer.drained(rows.count())])
    count = _write(rows, writer.begin(), partitions if routed else 0)
    files = _routed(writer, partitions) if routed else _unrouted(writer, partitions)
    message = writer.commit(files, count)
    try:
        return committer.commit(epoch, [message])
    except BaseException:
        try:
            committer.abort(epoch, [message])
        except StreamError as error:  # the sweep removes them later
            log.warning("aborting epoch %d: %s", epoch, error)
        raise


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


def _is_routed(frame: DataFrame, config: StreamConfig, partitions: int) -> bool:
    """Whether rows of one task go to several partitions.

    Raises:
        Unsupported: misuse; a key decides, or there are too many partitions.
        SchemaMismatch: permanent; ``_partition`` is not a number.
    """
    if _PARTITION not in frame.columns:
        keys = config.get("producer.key.columns", ())
        if partitions > 1 and (keys or "_key" in frame.columns):
            msg = "rows with keys go to the partition that Kafka's hash of the key "
            msg += "names, for which Spark has no expression"
            raise Unsupported(msg, stream=config.name, remedy=_REMEDY)
        return False
    kind = frame.schema[_PARTITION].dataType.typeName()
    if kind not in ("byte", "short", "integer", "long"):
        msg = f"column {_PARTITION!r} is {kind}, not a whole number"
        raise SchemaMismatch(msg, stream=config.name, remedy="cast it to int")
    if partitions > _MOST_ROUTED:
        msg = f"the topic has {partitions} partitions, and a task writes to at most "
        msg += f"{_MOST_ROUTED} at the same time"
        raise Unsupported(msg, stream=config.name, remedy=_REMEDY)
    return True


def _prepared(
    frame: DataFrame, writer: FileWriter, config: StreamConfig, *, routed: bool
) -> DataFrame:
    """The columns of the topic, and that of the partition."""
    for name in SPECIAL:
        if name in frame.columns and name != _PARTITION:
            what = "stream %r: the sink cannot store the column %s, which is dropped"
            log.warning(what, config.name, name)
    columns: list[Column] = fitted(frame, writer.schema)
    if routed:
        columns.append(quoted(_PARTITION))
    return frame.select(*columns)


# --- Spark's writer -------------------------------------------------------------


def _write(rows: DataFrame, stage: FileStage, lanes: int) -> int:
    """Have Spark write Parquet files; return the number of rows that tasks wrote.

    Spark's writer takes rows of the plan, not the plan: as the schema of a plan says
    which columns are never null, files would have columns that other files have not.
    A copy of the session has the settings, which other threads do not see.

    Args:
        rows: The rows.
        stage: Has the folder, and the limits of row groups.
        lanes: Partitions, if rows have the column of their partition; else 0.
    """
    session: Any = rows.sparkSession
    name = f"rows-{uuid.uuid4().hex}"
    counted = rows.observe(name, F.count(F.lit(1)).alias("rows"))
    plan = counted._jdf.queryExecution()
    copy = session._jsparkSession.cloneSession()
    copy.conf().unset("spark.sql.sources.outputCommitterClass")
    writers = {"spark.sql.maxConcurrentOutputFileWriters": str(lanes)}
    for key, value in {**_SETTINGS, **writers}.items():
        copy.conf().set(key, value)
    types = session._jvm.org.apache.spark.sql.types.DataType
    schema = types.fromJson(nullable(rows.schema).json())
    java = copy.internalCreateDataFrame(plan.toRdd(), schema, False).write()
    java = java.mode("append").format("parquet")
    limits = {
        "compression": _CODECS[stage.compression or "none"],
        "parquet.block.row.count.limit": str(stage.batch_rows),
        "parquet.block.size": str(stage.batch_bytes),
        "maxRecordsPerFile": str(stage.file_rows),
    }
    for key, value in {**_OPTIONS, **limits}.items():
        java = java.option(key, value)
    if lanes:
        names = session.sparkContext._gateway.new_array(session._jvm.String, 1)
        names[0] = _PARTITION
        java = java.partitionBy(names)
    java.save(f"file://{stage.folder}")
    # Of the accumulators of the job: complete when it has ended.
    return int(plan.observedMetrics().apply(name).getLong(0))


def _unrouted(writer: FileWriter, partitions: int) -> list[tuple[int, str]]:
    """The files, each for the partition of its task (rule W8)."""
    return [(task % partitions, name) for task, _, name in _files(writer.names())]


def _routed(writer: FileWriter, partitions: int) -> list[tuple[int, str]]:
    """The files of each partition, which Spark writes to a folder of its own.

    Raises:
        SchemaMismatch: permanent; a partition is null, or does not exist.
    """
    found = []
    for folder in writer.names():
        if folder.startswith(("_temporary", ".")):
            continue
        match = _LANE.fullmatch(folder)
        partition = -1 if match is None else int(match[1])
        if not 0 <= partition < partitions:
            what = "nulls" if match is None else f"the value {partition}"
            msg = f"column {_PARTITION!r} has {what}"
            remedy = f"use partitions 0 to {partitions - 1}"
            raise SchemaMismatch(msg, remedy=remedy)
        for _, _, name in _files(writer.names(folder)):
            found.append((partition, f"{folder}/{name}"))
    return found


def _files(names: Any) -> list[tuple[int, int, str]]:
    """Task, number and name of files, in the order of their rows."""
    found = []
    for name in names:
        if name.startswith(("_", ".")):
            continue
        match = _NAME.fullmatch(name)
        if match is None:
            msg = (
                f"the staged files of the epoch include {name!r}, which is not Spark's"
            )
            raise CorruptData(msg, remedy="write the epoch again")
        found.append((int(match[1]), int(match[2]), name))
    return sorted(found)
