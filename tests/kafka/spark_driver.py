"""A driver of its own: ``python -m tests.kafka.spark_driver FOLDER BOOTSTRAP TOPIC``.

It streams numbers from files into a topic of Kafka, until there are no more. Tasks die
where the folder ``faults`` says so.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.kafka.conftest import stream_of
from tests.spark.query_driver import dying_session, stream_all

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
    stream_all(
        spark,
        folder,
        source(folder),
        sink(folder, bootstrap, topic),
        "cast(cast(id as string) as binary) as value",
        "cast(cast(id % 7 as string) as binary) as _key",
        form=form,
    )


def main() -> None:
    name, bootstrap, topic = sys.argv[1:]
    folder = Path(name)
    with dying_session(folder) as spark:
        copy(spark, folder, bootstrap, topic, "dying")


if __name__ == "__main__":
    main()
