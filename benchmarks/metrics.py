"""What counting costs reads and writes, and what a scrape costs.

    python benchmarks/metrics.py [--json] [--rounds N]

The same reads and writes with and without what counts, in alternation, by processor
time; nothing is gated.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
import uuid
from contextlib import ExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pyarrow as pa

# A command's path is its own folder; what benchmarks share is imported from above it.
sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.measuring.figures import figure, report

import streamfactory
from streamfactory.spi import Partition
from streamfactory.wiring.core.clock import Clock
from streamfactory.wiring.metrics.registry import Registry, registry
from streamfactory.wiring.reading.counters import Counters, ReadTally
from streamfactory.wiring.writing.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from benchmarks.measuring.figures import Figure

EPOCHS = 40
PARTITIONS = 1000


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    report(figures(arguments.rounds), as_json=arguments.json)


def figures(rounds: int) -> Iterator[Figure]:
    """The cost of counting for two sizes of batches, and of a scrape."""
    for rows in (1_000, 64_000):
        table = rows_of(rows)
        with tempfile.TemporaryDirectory() as folder:
            stream = stream_in(folder, "read")
            write(stream, table)
            sides = {
                "counted": partial(read, stream),
                "not counted": partial(uncounted, read, stream),
            }
            yield share(f"reads of {rows // 1000}k rows", sides, rounds)
            sides = {
                "counted": partial(write_fresh, folder, table),
                "not counted": partial(uncounted, write_fresh, folder, table),
            }
            yield share(f"writes of {rows // 1000}k rows", sides, rounds)
    yield scrape(rounds)


def share(name: str, sides: Mapping[str, Callable[[], None]], rounds: int) -> Figure:
    """What counting adds, in percent of the processor time."""
    took: dict[str, list[float]] = {side: [] for side in sides}
    for number in range(rounds + 1):
        for side, task in list(sides.items())[:: 1 if number % 2 else -1]:
            took[side].append(processor_seconds(task))
    # The fastest quarter: what else the machine does only ever adds time.
    counted, without = (statistics.quantiles(took[one][1:], n=4)[0] for one in sides)
    added = [100 * (one / without - 1) for one in took["counted"][1:]]
    found = figure(f"counting, {name}", added, "%", "< 1")
    found.value = 100 * (counted / without - 1)
    return found


def processor_seconds(task: Callable[[], object]) -> float:
    """That a task takes."""
    begun = time.process_time()
    task()
    return time.process_time() - begun


def scrape(rounds: int) -> Figure:
    """The samples of many partitions."""
    one = Registry()
    tallies = [
        ReadTally("clicks", Partition("clicks", number), Counters(), Clock())
        for number in range(PARTITIONS)
    ]
    for tally in tallies:
        one.track(tally, tally)
    took = [1e3 * processor_seconds(one.samples) for _ in range(rounds)]
    return figure(f"samples of {PARTITIONS} partitions", took, "ms", "< 200")


def rows_of(rows: int) -> pa.Table:
    """A table of numbers and texts."""
    numbers = pa.arange(0, rows)
    texts = pa.array([f"note {n % 977:>10}" for n in range(rows)])
    return pa.table({"id": numbers, "price": numbers.cast(pa.float64()), "note": texts})


def stream_in(folder: str, topic: str) -> dict[str, str]:
    """A topic of ``file``."""
    return {
        "streamType": "file",
        "stream.file.path": folder,
        "stream.file.topic.name": topic,
    }


def write(stream: dict[str, str], table: pa.Table) -> None:
    """One epoch for each batch."""
    with streamfactory.open_sink({**stream, "stream.file.fsync": "never"}) as sink:
        for epoch in range(EPOCHS):
            sink.put(table, writer_id="bench", epoch=epoch)


def write_fresh(folder: str, table: pa.Table) -> None:
    """The same, to another topic each time."""
    write(stream_in(folder, uuid.uuid4().hex), table)


def read(stream: dict[str, str]) -> None:
    """All rows."""
    with streamfactory.open(stream) as batches:
        for _ in batches:
            pass


def uncounted(task: Any, *arguments: Any) -> None:
    """Run a task without what counts."""
    reading = "streamfactory.wiring.reading"
    with ExitStack() as stack:
        for module in ("recovering", "batches"):
            silent = mock.patch(f"{reading}.{module}.perf_counter", new=float)
            stack.enter_context(silent)
        for owner, name, instead in (
            (ReadTally, "observe", lambda *_: None),
            (Writer, "_timed", lambda _: nullcontext()),
            (registry, "track", lambda *_: lambda: None),
        ):
            stack.enter_context(mock.patch.object(owner, name, instead))
        task(*arguments)


if __name__ == "__main__":
    main()
