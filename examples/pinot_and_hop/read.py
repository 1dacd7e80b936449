"""Read the streams of a Pinot table and of a Hop project, with their own files.

`streams/flights.json` is the config of a Pinot table that consumes a Kafka topic.
`streams/customers.json` is a data-stream of a Hop project: an Arrow file that a Hop
pipeline writes. Both are in the form in which Pinot and Hop keep them. This program
puts data where they point to, as other programs would have done, and reads both.

    KAFKA=localhost:9092 python examples/pinot_and_hop/read.py

Needs: pip install 'streamfactory[kafka,json]', and a broker: docs/kafka.md starts one.
Writes the topic `pinot-example-flights`, and deletes it at the end; the rest is in a
temporary folder.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

import streamfactory

FOLDER = Path(__file__).parent / "streams"
# Pinot's table config has no schema: Pinot keeps it apart. Here it is an option.
SCHEMA = {"schema": "carrier string, flight bigint, departure timestamp"}


def main() -> None:
    os.environ.setdefault("KAFKA", "localhost:9092")
    os.environ["STREAMFACTORY_STREAMS"] = str(FOLDER)  # every file in it is a stream
    with tempfile.TemporaryDirectory() as project:
        os.environ["PROJECT_HOME"] = project  # a variable of the Hop project
        run("validate", "flights", "customers")
        run_hop(Path(project))
        show("customers")
    run("topics", "create", "flights", "--partitions", "2")  # refused if it exists
    try:
        produce()
        show("flights")
    finally:
        run("topics", "delete", "flights", "--yes")


def run(*words: str) -> None:
    """Run a command of the command line."""
    subprocess.run([sys.executable, "-m", "streamfactory", *words], check=True)


def run_hop(project: Path) -> None:
    """Write the file that a pipeline of the Hop project would write."""
    customers = pa.table({"id": [1, 2], "name": ["Ann", "Bob"]})
    with pa.ipc.new_stream(project / "customers.arrow", customers.schema) as writer:
        writer.write_table(customers)


def produce() -> None:
    """Write messages into the topic that the Pinot table consumes."""
    departures = [datetime(2013, 1, 1, 5, minute, tzinfo=UTC) for minute in (17, 42)]
    rows = {"carrier": ["UA", "AA"], "flight": [1545, 1141], "departure": departures}
    with streamfactory.open_sink("flights", options=SCHEMA) as sink:
        sink.put(pa.table(rows))


def show(name: str) -> None:
    """Print the rows of a stream."""
    options = SCHEMA if name == "flights" else None
    with streamfactory.open(name, options=options) as stream:
        for row in stream.to_reader().read_all().to_pylist():
            print(f"{name}:", *row.values())


if __name__ == "__main__":
    main()
