"""A driver of its own: ``python -m tests.spool.spark_driver FOLDER``.

It streams what a spool of zeromq holds into a file stream, until there is no more.
Tasks die where the folder ``faults`` says so.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

from tests.spark.queries import EPOCH
from tests.spool.receiving import quick_spool

from streamfactory.spark import prepare_environment


def wire(folder: Path, side: str) -> dict[str, str]:
    """One side of two partitions."""
    return {
        "streamType": "zeromq",
        "stream.zeromq.pattern": "dealer-router",
        "stream.zeromq.topic.name": "numbers",
        "stream.zeromq.connection.timeout.millis": "120000",
        f"stream.zeromq.{side}": f"ipc://{folder}/wire-{{0-1}}",
    }


def spooled(folder: Path) -> dict[str, str]:
    """The spool: what receives into it, and what is read."""
    given = {**wire(folder, "bind"), **quick_spool(folder)}
    return {**given, "schema": "id bigint"}


def target(folder: Path) -> dict[str, str]:
    """The stream that the query writes."""
    return {
        "streamType": "file",
        "stream.file.path": str(folder / "out"),
        "stream.file.topic.name": "out",
        "stream.file.partitions": "2",
        "stream.file.fsync": "never",
    }


def main() -> None:
    folder = Path(sys.argv[1])
    prepare_environment(local=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from tests.spark.killing import Faults, register_dying
        from tests.spark.scenario import session

        # Tries of a task are for its kills.
        spark = session("local[2,4]", 4)
    try:
        register_dying(spark, Faults(folder / "faults"))
        frame = spark.readStream.format("streamfactory").options(**spooled(folder))
        frame = frame.options(
            startingOffsets="earliest", maxOffsetsPerTrigger=str(EPOCH)
        )
        writer = frame.load().writeStream.format("dying").options(**target(folder))
        writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
