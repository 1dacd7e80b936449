"""Streams a topic of Kafka into a topic of files, as a program that can be killed.

``python -m tests.kafka.spark_source_driver FOLDER BOOTSTRAP TOPIC MODE [KEY=VALUE]``,
with options of the source at the end. MODE is ``available`` (until all is read that was
there), ``explained`` (the same, and the plan is printed) or ``follow`` (for ever).
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

from tests.kafka.conftest import stream_of

from streamfactory.spark import prepare_environment

EPOCH = 60
"""Offsets of a batch, at most."""


def target(folder: Path) -> dict[str, str]:
    """The topic that is written."""
    return {
        "streamType": "file",
        "stream.file.path": str(folder / "topics"),
        "stream.file.topic.name": "out",
        "stream.file.partitions": "2",
        "stream.file.fsync": "never",
    }


def main() -> None:
    name, bootstrap, topic, mode, *given = sys.argv[1:]
    folder, more = Path(name), dict(one.split("=", 1) for one in given)
    prepare_environment(local=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from tests.spark.scenario import session

        spark = session("local[2]", 2)
    source = stream_of(bootstrap, topic) | {
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(EPOCH),
        **more,
    }
    try:
        frame = spark.readStream.format("streamfactory").options(**source).load()
        rows = frame.selectExpr("cast(cast(value as string) as bigint) as id")
        writer = rows.writeStream.format("streamfactory").options(**target(folder))
        writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
        if mode != "follow":
            writer = writer.trigger(availableNow=True)
        query = writer.start()
        query.awaitTermination()
        if mode == "explained":
            query.explain(extended=True)
            spark.read.format("streamfactory").options(**source).load().explain(True)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
