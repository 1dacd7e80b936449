"""The query of a driver that is a process of its own: a stream into another one.

Tasks die where the folder ``faults`` says so; see `tests.spark.queries`.
"""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.spark.queries import EPOCH

from streamfactory.spark import prepare_environment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

PATIENCE = 300
"""Seconds for all that is there."""


@contextmanager
def dying_session(folder: Path) -> Iterator[SparkSession]:
    """A session with the sink ``dying``. Tries of a task are for its kills."""
    prepare_environment(local=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from tests.spark.killing import Faults, register_dying
        from tests.spark.scenario import session

        spark = session("local[2,4]", 4)
    try:
        register_dying(spark, Faults(folder / "faults"))
        yield spark
    finally:
        spark.stop()


def stream_all(
    spark: SparkSession,
    folder: Path,
    source: Mapping[str, str],
    sink: Mapping[str, str],
    *columns: str,
    form: str = "dying",
) -> None:
    """Stream what is there.

    Args:
        spark: With the format.
        folder: Of the checkpoint.
        source: The stream that is read.
        sink: The stream that is written.
        columns: Expressions; none for the columns of the source.
        form: The format that writes.
    """
    frame = spark.readStream.format("streamfactory").options(**source)
    frame = frame.options(startingOffsets="earliest", maxOffsetsPerTrigger=str(EPOCH))
    rows = frame.load().selectExpr(*columns or ["*"])
    writer = rows.writeStream.format(form).options(**sink)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    if not query.awaitTermination(PATIENCE):
        msg = f"the query did not read everything in {PATIENCE} s"
        raise TimeoutError(msg)


def run_dying(
    folder: Path, source: Mapping[str, str], sink: Mapping[str, str], *columns: str
) -> None:
    """Stream what is there, in a session whose tasks die."""
    with dying_session(folder) as spark:
        stream_all(spark, folder, source, sink, *columns)
