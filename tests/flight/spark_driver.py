"""A driver of its own: ``python -m tests.flight.spark_driver FOLDER PORT``.

It streams numbers from one topic of a Flight server into another, until there are no
more. Tasks die where the folder ``faults`` says so.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.spark.query_driver import run_dying

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
    run_dying(folder, topic(port, "in"), topic(port, "out"))


if __name__ == "__main__":
    main()
