"""``format("streamfactory")``: any shared stream as a Spark data source.

It registers itself if installed next to PySpark; `register` does it explicitly::

    spark.read.format("streamfactory").option("stream", "clicks").load()

The modules below import PySpark; importing this package does not.
"""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, final

from streamfactory.spark.interpreter import python_of_workers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from streamfactory.spi import Position
    from streamfactory.wiring.reading.starts import Start

__all__ = [
    "Branch",
    "fan_out",
    "prepare_environment",
    "register",
    "save",
    "scan",
    "stream_options",
]


def register(spark: SparkSession) -> None:
    """Register ``format("streamfactory")`` in a session; twice is allowed.

    PySpark finds the source without it, but does not give it the configuration of the
    session or the working folder of the program. Here both are read: named streams are
    then looked up in the folder ``spark.streamfactory.streams`` of the session, and
    relative paths start in the working folder. Call it again after a change.
    """
    from pyspark.errors import AnalysisException

    from streamfactory.spark.catalogues import Home
    from streamfactory.spark.source import StreamFactorySource

    class Registered(StreamFactorySource):
        # Pickled by value, as a class of a function: with what is known here.
        HOME = Home.of(spark)

    try:
        spark.dataSource.register(Registered)
    except AnalysisException as error:
        # PySpark 4.0 raises this for a source that it discovered at start.
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


def stream_options(name: str, *, spark: SparkSession) -> dict[str, str]:
    """Return the options of ``format("streamfactory")`` for a named stream.

    The catalogue is looked up in this process: ``spark.streamfactory.streams`` of the
    session, else STREAMFACTORY_STREAMS, else ``configs/streams`` of the working folder.
    Spark's processes, which see none of these, get its absolute path. For definitions
    of ``spark-pipelines``, and other programs of Spark Connect on the machine of the
    driver.

    Args:
        name: Of the stream. It is looked up when Spark creates the source.
        spark: The session.
    """
    from streamfactory.spark.catalogues import OPTION, Home

    folder = Home.of(spark).catalogue().folder
    return {"stream": name, OPTION: str(folder)}


def scan(
    stream: str | Mapping[str, str],
    *,
    start: Start | None = None,
    end: Position | None = None,
    spark: SparkSession | None = None,
) -> DataFrame:
    """Return the rows of an offset range, read by Spark's own Parquet reader.

    For topics of ``file`` that were created with ``segment.format=parquet``, in a
    folder that every executor reaches by the same path. The rows are those of
    ``format("streamfactory")``, with the columns ``_partition`` and ``_offset``; all
    columns are nullable. The range is planned now; Spark reads it when the frame is
    evaluated, prunes columns and pushes filters down. Values are not validated.

    A file that retention or a merge removes after the scan was planned fails the query
    with Spark's ``FAILED_READ_FILE``: plan it again.

    Args:
        stream: Name of a stream of the catalogue, or its properties, with the start and
            end options of a batch.
        start: ``earliest``, a time, or a position: has precedence over the start
            options. Inclusive.
        end: Has precedence over the end options for its partitions. Exclusive.
        spark: The session; by default the active one.

    Raises:
        ConfigError: config; invalid options, all at once.
        Unsupported: misuse; the stream is not stored in Parquet files of a folder.
        SchemaMismatch: permanent; a column has a type that Spark's reader does not read
            as ``format("streamfactory")`` does.
        OffsetOutOfRange: data_loss; the start is out of range.
        CorruptData: data_loss; a file is not of the topic, or has other rows than were
            committed.
        MisuseError: misuse; no session is active.
    """
    from streamfactory.spark.scanning import scan_range

    return scan_range(stream, start, end, spark)


def save(
    frame: DataFrame,
    stream: str | Mapping[str, str],
    *,
    writer_id: str | None = None,
    epoch: int | None = None,
) -> bool:
    """Append the rows of a frame, written by Spark's own Parquet writer.

    For topics of ``file`` with ``segment.format=parquet``, in a folder that the driver
    and every executor reach by the same path, or in an object store of S3 or Google
    that the session reaches by Hadoop, too. The rows are those that
    ``format("streamfactory")`` writes; no row passes through Python. The files are
    checked on the driver and become visible in one step. Repeating an epoch has no
    effect: its rows are counted, and compared where ``epoch.mismatch`` is ``fail``.

    Rows go to the partition in the column ``_partition``, else by Kafka's hash of
    ``_key`` or ``producer.key.columns``, else by the number of their task. For
    functions of ``foreachBatch``, too.

    Args:
        frame: The rows; not of a stream.
        stream: Name of a stream of the catalogue, or its properties.
        writer_id: Survives restarts; with ``epoch``, or neither: then nothing keeps the
            rows from being written twice.
        epoch: At least 0, increasing per writer.

    Returns:
        True if this call made the commit, False if it was made before.

    Raises:
        ConfigError: config; invalid options, all at once.
        Unsupported: misuse; the topic is not stored in Parquet files, has too many
            partitions, or rows have keys and PySpark is older than 4.1; or this session
            has no file system of Hadoop for the object store.
        SchemaMismatch: permanent; the columns do not fit, or Spark does not store them
            as the topic does; a partition is null or does not exist.
        EpochInThePast: misuse; a later epoch of this writer is committed.
        EpochMismatch: misuse; the epoch was repeated with other rows, under
            ``epoch.mismatch=fail``.
        StorageFailed: permanent; the driver does not see what executors wrote.
        MessageTooLarge: permanent; a row group expands to more than readers accept, or
            a file of an object store has more than 5 GiB.
        MisuseError: misuse; the frame is one of a stream.
        Errors of Spark are raised as they are.
    """
    from streamfactory.spark.saving import save_frame

    return save_frame(frame, stream, writer_id, epoch)


@final
@dataclass(frozen=True, slots=True)
class Branch:
    """One sink of `fan_out`."""

    stream: str | Mapping[str, str]
    """Name of a stream of the catalogue, or its properties."""
    name: str | None = None
    """Name of the sink, part of its writer id; by default that of the stream, or its
    topic. Keep it when the stream changes."""
    select: Callable[[DataFrame], DataFrame] | None = None
    """Makes the rows of this sink from the rows of the batch; by default all of them.
    Only row by row: an aggregation would be of one batch."""


def fan_out(
    frame: DataFrame,
    epoch: int,
    *,
    streams: Sequence[str | Mapping[str, str] | Branch],
    query: str | None = None,
) -> None:
    """Write the rows of a micro-batch to several streams, each exactly once.

    For functions of ``foreachBatch``, beside other writes of the same rows. The frame
    is evaluated once; cache it before, if it is written elsewhere too. The sinks are
    written at the same time, each as an epoch of its own writer id, ``<query>/<name of
    the sink>``. Every sink is tried: one that fails does not keep the epoch from the
    others. When Spark repeats the batch, sinks that have the epoch take no second copy.

    Args:
        frame: The rows.
        epoch: Number of the batch, as Spark passes it to the function.
        streams: At least one; with `Branch` for a name, or rows of its own.
        query: First part of the writer ids. By default the id of Spark's streaming
            query, which is that of its checkpoint.

    Raises:
        ConfigError: config; invalid streams, all at once. Nothing was written.
        MisuseError: misuse; no ``query``, and not called in ``foreachBatch``.
        FanOutFailed: permanent; some of the sinks failed, the others have the epoch.
            Calling again with the same epoch writes it where it is missing.
    """
    from streamfactory.spark.fanout import fan_out_frame

    fan_out_frame(frame, epoch, streams, query)


def prepare_environment(*, local: bool = False) -> None:
    """Configure Spark to use this interpreter for its Python workers, and find Java.

    Call it before the session is created. Otherwise Spark starts the first ``python3``
    of the path, which lacks the packages of a virtual environment. If ``JAVA_HOME`` has
    no Java, the one of the path is used, else the one in the folder ``java`` of the
    virtual environment.

    Args:
        local: Whether Spark runs on this machine only. Its Python processes then import
            the installed PySpark, which makes them start faster.
    """
    python = python_of_workers() if local else sys.executable
    os.environ.setdefault("PYSPARK_PYTHON", python)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", python)
    if find_java() is None:
        # An invalid `JAVA_HOME` would hide the Java of the path.
        os.environ.pop("JAVA_HOME", None)
        inside = Path(sys.prefix, "java")
        if find_java() is None and inside.is_dir():
            os.environ["JAVA_HOME"] = str(inside)


def find_java() -> str | None:
    """The Java that Spark starts: of ``JAVA_HOME``, else of the path; or None."""
    home = os.environ.get("JAVA_HOME")
    if home:
        inside = Path(home, "bin", "java")
        return str(inside) if os.access(inside, os.X_OK) else None
    return shutil.which("java")
