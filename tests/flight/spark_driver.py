"""A driver of its own: ``python -m tests.flight.spark_driver FOLDER PORT``.

It streams numbers from one topic of a Flight server into another, until there are no
more. Tasks die where the folder ``faults`` says so.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

from tests.spark.queries import EPOCH

from streamfactory.spark import prepare_environment

PATIENT = {
    "stream.flight.connection.timeout.millis": "60000",
    "retry.max.attempts": "1000",
    "retry.initial.millis": "20",
    "retry.max.millis": "200",
}
"""A server that was killed is there again in a second or two."""


def topic(port: int, name: str) -> dict[str, str]:
    """A topic on the server."""
    return {
        "streamType": "flight",
        "stream.flight.location": f"grpc://127.0.0.1:{port}",
        "stream.flight.topic.name": name,
        "stream.flight.partitions": "3",
        **PATIENT,
    }


def main() -> None:
    folder, port = Path(sys.argv[1]), int(sys.argv[2])
    prepare_environment(local=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from tests.spark.killing import Faults, register_dying
        from tests.spark.scenario import session

        # Tries of a task are for its kills: a server that is away is waited for.
        spark = session("local[2,4]", 4)
    try:
        register_dying(spark, Faults(folder / "faults"))
        frame = spark.readStream.format("streamfactory").options(**topic(port, "in"))
        frame = frame.options(
            startingOffsets="earliest", maxOffsetsPerTrigger=str(EPOCH)
        )
        writer = frame.load().writeStream.format("dying").options(**topic(port, "out"))
        writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
