"""What a push table costs, beside a `queue.Queue` of the same batches.

    python benchmarks/push.py [--json] [--rounds N] [--megabytes M]

The reader sums a column of each batch, as the cheapest query would. Ratios are medians
of rounds that take turns; nothing is gated. With several producers the table has a lane
for each, and the bare queue is shared. The last figure is the most memory of a process
that reads 10 GB with DuckDB from a table of 64 MB, beside that of one that reads 1 GB.
"""

from __future__ import annotations

import argparse
import queue
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

# A command's path is its own folder; what benchmarks share is imported from above it.
sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.measuring.figures import figure, itself, ratios, report, turns
from benchmarks.measuring.rows import batches

from streamfactory import push_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.measuring.figures import Figure

PRODUCERS = (1, 2, 4, 8)
ROWS = (65_536, 1_000)
"""Of a batch."""
WAITING = 16
"""Batches."""

MEMORY = """
import re, sys, threading
import duckdb
import pyarrow as pa
from streamfactory import push_table

rows, count = 1 << 20, int(sys.argv[1]) << 7
schema = pa.schema([("number", pa.int64())])
sink, pushed = push_table(schema, capacity_bytes=64 << 20)

def push():
    with sink:
        for n in range(count):
            sink.write(pa.record_batch([pa.arange(n, n + rows)], schema))

producer = threading.Thread(target=push)
producer.start()
duckdb.execute("set enable_progress_bar = false")
found = duckdb.execute("select count(number) from pushed").fetchone()
producer.join()
assert found == (rows * count,)
status = open("/proc/self/status").read()  # `ru_maxrss` counts the parent, too
print(int(re.search(r"VmHWM:\\s+(\\d+) kB", status)[1]) >> 10)
"""


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--megabytes", type=int, default=512, help="of a round")
    arguments = parser.parse_args()
    figures = measured(arguments.rounds, arguments.megabytes)
    report(figures, as_json=arguments.json)


def measured(rounds: int, megabytes: int) -> Iterator[Figure]:
    """All figures."""
    for size in ROWS:
        some = batches(size, 32 << 20)
        found = some * max(1, (megabytes << 20) // (32 << 20))
        for producers in PRODUCERS:
            took = turns(
                rounds,
                {
                    "bare": partial(over_queue, found, producers),
                    "table": partial(over_table, found, producers),
                },
            )
            values = ratios(took["bare"], took["table"])
            name = f"push, {size} rows, {producers} producers"
            again = itself(took)
            yield figure(name, values, "x queue", ">= 0.95", again=again)
    one, ten = peak(1), peak(10)
    beside = {"MB of 10 GB": ten, "MB of 1 GB": one}
    yield figure("memory, 10 GB through 64 MB", [ten / one], "x 1 GB", "<= 1.1", beside)


def over_queue(found: Sequence[pa.RecordBatch], producers: int) -> None:
    """A queue of as many batches as the table holds."""
    shared: queue.Queue[pa.RecordBatch | None] = queue.Queue(WAITING)

    def push(part: Sequence[pa.RecordBatch]) -> None:
        for rows in part:
            shared.put(rows)
        shared.put(None)

    threads = started(push, found, producers)
    ended = 0
    while ended < producers:
        rows = shared.get()
        if rows is None:
            ended += 1
        else:
            pc.sum(rows.column(0))
    for thread in threads:
        thread.join()


def over_table(found: Sequence[pa.RecordBatch], producers: int) -> None:
    """A table with a lane for each producer."""
    sink, table = push_table(
        found[0].schema,
        lanes=producers,
        capacity_batches=max(1, WAITING // producers),
        capacity_bytes=1 << 30,
    )

    lanes = iter(range(producers))

    def push(part: Sequence[pa.RecordBatch]) -> None:
        lane = sink.lane(next(lanes))
        for rows in part:
            lane.write(rows)
        lane.close()

    threads = started(push, found, producers)
    for rows in table:
        pc.sum(rows.column(0))
    for thread in threads:
        thread.join()


def started(
    push: Any, found: Sequence[pa.RecordBatch], producers: int
) -> list[threading.Thread]:
    """Threads that push a share of the batches each."""
    threads = [
        threading.Thread(target=push, args=(found[number::producers],))
        for number in range(producers)
    ]
    for thread in threads:
        thread.start()
    return threads


def peak(gigabytes: int) -> float:
    """MB that a process has at the most."""
    command = [sys.executable, "-c", MEMORY, str(gigabytes)]
    done = subprocess.run(  # noqa: S603 - this program
        command, capture_output=True, text=True, check=True
    )
    return float(done.stdout)


if __name__ == "__main__":
    main()
