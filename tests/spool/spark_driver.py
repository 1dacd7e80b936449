"""A driver of its own: ``python -m tests.spool.spark_driver FOLDER``.

It streams what a spool of zeromq holds into a file stream, until there is no more.
Tasks die where the folder ``faults`` says so.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.spark.query_driver import run_dying
from tests.spool.receiving import quick_spool


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
    run_dying(folder, spooled(folder), target(folder))


if __name__ == "__main__":
    main()
