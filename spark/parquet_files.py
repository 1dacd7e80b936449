"""Has Spark's own Parquet writer write the files of an epoch, and finds them."""

from __future__ import annotations

import re
import uuid
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.sql import functions as F  # noqa: N812 - as Spark's documentation has it

from streamfactory.spark.sink import nullable
from streamfactory.spi import CorruptData, SchemaMismatch, Unsupported

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from streamfactory.wiring.writing.files import FileStage, FileWriter

PARTITION: Final = "_partition"
"""Column of the partition of a row."""
_NAME: Final = re.compile(
    r"part-(\d{1,9})-[0-9a-f-]{36}[-.]c(\d{1,9})(?:\.[0-9a-z]{1,16})?\.parquet"
)
"""Task and number of a file within it, in the names that Spark gives."""
_OTHERS: Final = ("_temporary", ".")
"""Beginnings of other names: attempts of tasks, and checksums."""
_PARTITION_FOLDER: Final = re.compile(rf"{PARTITION}=(-?\d{{1,19}})")
_NULL: Final = f"{PARTITION}=__HIVE_DEFAULT_PARTITION__"
"""Spark's folder for rows whose partition is null."""
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


_SCHEMES: Final = {"s3": "s3a", "gs": "gs"}
"""Hadoop's name of an object store, by that of its URL."""
_REMEDY: Final = 'write it with format("streamfactory")'


def location(session: Any, place: str) -> str:
    """Return where Spark's writer writes, as a URL for Hadoop.

    Args:
        session: Of Spark.
        place: A folder, or the URL of an object store.

    Raises:
        Unsupported: misuse; this Spark has no file system of Hadoop for the store.
    """
    scheme, found, rest = place.partition("://")
    if not found:
        return f"file://{place}"
    name = _SCHEMES.get(scheme)
    if name is None:
        msg = f"Spark's Parquet writer is not used for {place}"
        raise Unsupported(msg, remedy=_REMEDY)
    system = session._jvm.org.apache.hadoop.fs.FileSystem
    conf = session._jsparkSession.sessionState().newHadoopConf()
    try:
        system.getFileSystemClass(name, conf)
    except Py4JJavaError as error:
        msg = f"this Spark has no file system of Hadoop for {name}://: "
        msg += error.java_exception.getMessage()
        what = "org.apache.hadoop:hadoop-aws" if name == "s3a" else "Google's connector"
        raise Unsupported(
            msg, remedy=f"add {what} to the session (spark.jars.packages), or {_REMEDY}"
        ) from error
    return f"{name}://{rest}"


def write_files(rows: DataFrame, stage: FileStage, partitions: int) -> int:
    """Have Spark write Parquet files; return the number of rows that tasks wrote.

    Spark's writer takes rows of the plan, not the plan: as the schema of a plan says
    which columns are never null, files would have columns that other files have not.
    A copy of the session has the settings, which other threads do not see.

    Args:
        rows: The rows.
        stage: Has the folder, and the limits of row groups.
        partitions: Partitions, if rows have the column of their partition; else 0.
    """
    session: Any = rows.sparkSession
    name = f"rows-{uuid.uuid4().hex}"
    counted = rows.observe(name, F.count(F.lit(1)).alias("rows"))
    plan = counted._jdf.queryExecution()
    copy = session._jsparkSession.cloneSession()
    copy.conf().unset("spark.sql.sources.outputCommitterClass")
    writers = {"spark.sql.maxConcurrentOutputFileWriters": str(partitions)}
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
    if partitions:
        names = session.sparkContext._gateway.new_array(session._jvm.String, 1)
        names[0] = PARTITION
        java = java.partitionBy(names)
    java.save(location(session, stage.folder))
    # Of the accumulators of the job: complete when it has ended.
    return int(plan.observedMetrics().apply(name).getLong(0))


def find_files(
    writer: FileWriter, partitions: int, *, routed: bool
) -> list[tuple[int, str]]:
    """Return partition and path of the files that Spark has written.

    In the order of the rows: that of tasks, and of files within them.

    Args:
        writer: Has begun.
        partitions: Of the topic.
        routed: Whether the rows had the column of their partition; otherwise the number
            of their task decides (rule W8).

    Raises:
        SchemaMismatch: permanent; a partition is null, or does not exist.
        CorruptData: data_loss; something else was written there.
    """
    if not routed:
        found = _files(writer.names())
        return [(task % partitions, name) for task, _, name in found]
    return [
        (partition, f"{folder}/{name}")
        for folder in writer.names()
        if not folder.startswith(_OTHERS)
        for partition in (_partition_of(folder, partitions),)
        for _, _, name in _files(writer.names(folder))
    ]


def _partition_of(folder: str, partitions: int) -> int:
    match = _PARTITION_FOLDER.fullmatch(folder)
    if match is None and folder != _NULL:
        raise _foreign(folder)
    partition = -1 if match is None else int(match[1])
    if not 0 <= partition < partitions:
        what = "nulls" if match is None else f"the value {partition}"
        msg = f"column {PARTITION!r} has {what}"
        remedy = f"use partitions 0 to {partitions - 1}"
        raise SchemaMismatch(msg, remedy=remedy)
    return partition


def _files(names: Sequence[str]) -> list[tuple[int, int, str]]:
    """Task, number and name of files, in the order of their rows."""
    found = []
    for name in names:
        if name.startswith(_OTHERS):
            continue
        match = _NAME.fullmatch(name)
        if match is None:
            raise _foreign(name)
        found.append((int(match[1]), int(match[2]), name))
    return sorted(found)


def _foreign(name: str) -> CorruptData:
    msg = f"the staged files of the epoch include {name!r}, which is not Spark's"
    return CorruptData(msg, remedy="write the epoch again")
