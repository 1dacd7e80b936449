"""What counting costs reads and writes, and what a scrape costs.

    python benchmarks/metrics.py [--json] [--rounds N]

Two ways, both by processor time. The first runs the same reads and writes with and
without what counts. Each round takes one run that counts and two that do not, in a new
order; the figure is the median of the ratios of many rounds. Beside it are the bounds
of its 95 % confidence interval, and as ``control`` the same median of the two runs that
do not count: what differs from 0 there is noise. The second multiplies the calls of
what counts in one run by the time of each, measured in a loop: it depends little on
what else the machine does. Nothing is gated.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import tempfile
import time
import uuid
from collections import Counter
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from time import perf_counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

import pyarrow as pa

# A command's path is its own folder; what benchmarks share is imported from above it.
sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.measuring.figures import Figure, figure, report, shuffled

import streamfactory
from streamfactory.spi import Partition
from streamfactory.wiring.core.clock import Clock
from streamfactory.wiring.metrics.registry import Registry, registry
from streamfactory.wiring.reading.counters import Counters, ReadTally
from streamfactory.wiring.writing.counters import Timing, WriteCounters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


EPOCHS: Final = 10
PARTITIONS: Final = 1000
LOOPS: Final = 20
CALLS: Final = 2000


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=200)
    arguments = parser.parse_args()
    report(figures(arguments.rounds), as_json=arguments.json)


def figures(rounds: int) -> Iterator[Figure]:
    """The cost of counting for two sizes of batches, and of a scrape."""
    for rows in (1_000, 64_000):
        table = rows_of(rows)
        with tempfile.TemporaryDirectory() as folder:
            stream = stream_in(folder, "read")
            write(stream, table)
            reads = partial(read, stream)
            yield compared(f"reads of {rows // 1000}k rows", reads, rounds)
            yield summed(f"reads of {rows // 1000}k rows", reads)
            writes = partial(write_fresh, folder, table)
            yield compared(f"writes of {rows // 1000}k rows", writes, rounds)
            yield summed(f"writes of {rows // 1000}k rows", writes)
    yield scrape(min(rounds, 15))


def compared(name: str, task: Callable[[], None], rounds: int) -> Figure:
    """What counting adds, in percent, by runs with and without it."""
    sides = {
        "counted": task,
        "not counted": partial(uncounted, task),
        "again": partial(uncounted, task),
    }
    took: dict[str, list[float]] = {side: [] for side in sides}
    for number in range(rounds + 1):
        for side, run in shuffled(sides):
            gc.collect()
            one = processor_seconds(run)
            if number:  # the first round warms up
                took[side].append(one)
    pairs = list(zip(took["not counted"], took["again"], strict=True))
    added = [
        100 * (2 * one / (first + second) - 1)
        for one, (first, second) in zip(took["counted"], pairs, strict=True)
    ]
    control = statistics.median(100 * (first / second - 1) for first, second in pairs)
    low, high = interval(added)
    beside = {"from": low, "to": high, "control": control}
    again = [first / second for first, second in pairs]
    return figure(f"counting, {name}", added, "%", "< 1", beside, again=again)


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The 95 % confidence interval of the median, whatever the distribution."""
    ordered, count = sorted(values), len(values)
    half = round(0.98 * count**0.5)
    return ordered[max(0, count // 2 - half)], ordered[
        min(count - 1, count // 2 + half)
    ]


def summed(name: str, task: Callable[[], None]) -> Figure:
    """What counting takes, in percent, by its calls and the time of each."""
    calls: Counter[str] = Counter()
    with replaced(calls):
        task()
    each = {"perf_counter": seconds_of(perf_counter), **seconds_of_each()}
    spent = sum(count * each[what] for what, count in calls.items())
    whole = min(processor_seconds(partial(uncounted, task)) for _ in range(LOOPS))
    what, beside = f"counting, by its calls, {name}", {"microseconds": 1e6 * spent}
    return figure(what, [100 * spent / whole], "%", "< 1", beside)


def seconds_of(call: Callable[[], object]) -> float:
    """Processor time of a call: the least of some loops."""

    def loop() -> None:
        for _ in range(CALLS):
            call()

    return min(processor_seconds(loop) for _ in range(LOOPS)) / CALLS


def seconds_of_each() -> dict[str, float]:
    """The times of what is called beside the clock."""
    registry, tally = Registry(), tally_of(0)
    batch: Any = SimpleNamespace()
    batches = iter(range(LOOPS * CALLS + 1))

    def observe() -> None:
        batch.latest = batch.next_offset = next(batches)  # a new one each time
        tally.observe(batch)

    def track() -> None:
        registry.track(tally, tally)()

    timing = Timing(WriteCounters())
    found: dict[str, Callable[[], object]] = {
        "observe": observe,
        "track": track,
        "__enter__": timing.__enter__,
        "__exit__": partial(timing.__exit__, None),
    }
    return {name: seconds_of(call) for name, call in found.items()}


def processor_seconds(task: Callable[[], object]) -> float:
    """That a task takes."""
    begun = time.process_time()
    task()
    return time.process_time() - begun


def scrape(rounds: int) -> Figure:
    """The samples of many partitions."""
    one = Registry()
    tallies = [tally_of(number) for number in range(PARTITIONS)]
    for tally in tallies:
        one.track(tally, tally)
    took = [1e3 * processor_seconds(one.samples) for _ in range(rounds)]
    return figure(f"samples of {PARTITIONS} partitions", took, "ms", "< 200")


def tally_of(number: int) -> ReadTally:
    """The metrics of a reader of one partition."""
    return ReadTally("clicks", Partition("clicks", number), Counters(), Clock())


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


def uncounted(task: Callable[[], None]) -> None:
    """Run a task without what counts."""
    with replaced():
        task()


@contextmanager
def replaced(counting: Counter[str] | None = None) -> Iterator[None]:
    """Leave out what counts, or note each of its calls.

    Args:
        counting: Gets the number of calls by name; without it nothing is called.
    """
    timing = ("reading.recovering", "reading.batches")
    modules = [import_module(f"streamfactory.wiring.{name}") for name in timing]
    places: list[tuple[Any, str, Any]] = [
        *((module, "perf_counter", float) for module in modules),
        (ReadTally, "observe", lambda *_: None),
        (Timing, "__enter__", lambda *_: None),
        (Timing, "__exit__", lambda *_: None),
        (registry, "track", lambda *_: lambda: None),
    ]
    with ExitStack() as stack:
        for owner, name, silent in places:
            instead = silent
            if counting is not None:
                instead = noted(counting, name, getattr(owner, name))
            stack.enter_context(mock.patch.object(owner, name, instead))
        yield


def noted(calls: Counter[str], name: str, call: Any) -> Any:
    """A function that notes its calls."""

    def noting(*arguments: Any) -> Any:
        calls[name] += 1
        return call(*arguments)

    return noting


if __name__ == "__main__":
    main()
