"""A driver of its own: ``python -m tests.kafka.spark_driver FOLDER BOOTSTRAP TOPIC``.

It streams numbers from files into a topic of Kafka, until there are no more. Tasks die
where the folder ``faults`` says so.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from tests.kafka.conftest import stream_of

from streamfactory.spark import prepare_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EPOCH = 100
"""Rows of an epoch."""


def source(folder: Path) -> dict[str, str]:
    return {
        "streamType": "file",
        "stream.file.path": str(folder / "topics"),
        "stream.file.topic.name": "in",
        "stream.file.partitions": "3",
        "stream.file.fsync": "never",
    }


def sink(folder: Path, bootstrap: str, topic: str) -> dict[str, str]:
    return stream_of(bootstrap, topic) | {
        "stream.kafka.staging.location": str(folder / "staging"),
        "stream.kafka.staging.inline.bytes": "1000",
    }


def copy(
    spark: SparkSession,
    folder: Path,
    bootstrap: str,
    topic: str,
    form: str = "streamfactory",
) -> None:
    """Stream what is there."""
    frame = spark.readStream.format("streamfactory").options(**source(folder))
    frame = frame.options(startingOffsets="earliest", maxOffsetsPerTrigger=str(EPOCH))
    rows = frame.load().selectExpr(
        "cast(cast(id as string) as binary) as value",
        "cast(cast(id % 7 as string) as binary) as _key",
    )
    writer = rows.writeStream.format(form)
    writer = writer.options(**sink(folder, bootstrap, topic))
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    if not query.awaitTermination(300):
        msg = "the query did not read everything in 300 s"
        raise TimeoutError(msg)
    if query.exception() is not None:
        raise RuntimeError(str(query.exception()))


def main() -> None:
    folder, bootstrap, topic = sys.argv[1:]
    prepare_environment(local=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from tests.spark.killing import Faults, register_dying
        from tests.spark.scenario import session

        spark = session("local[2,4]", 4)
    try:
        register_dying(spark, Faults(Path(folder, "faults")))
        copy(spark, Path(folder), bootstrap, topic, "dying")
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
