"""Bounds and times of many partitions."""

from __future__ import annotations

import time
import uuid
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Final

from benchmarks.disklog.topic import (
    MANY,
    TOPIC,
    append,
    few_rows,
    many_rows,
    new_log,
    open_log,
    properties,
)
from benchmarks.measuring.figures import figure, turns

import streamfactory
from streamfactory.arrowlog import Epoch
from streamfactory.arrowlog.disk import DiskLogStore, LocalStorage, Settings
from streamfactory.arrowlog.disk.records import Run, Segment
from streamfactory.spi import Summary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from benchmarks.disklog.topic import Bench
    from benchmarks.measuring.figures import Figure

    from streamfactory.arrowlog.disk import DiskLog

STARTED_MS: Final = 1_700_000_000_000


def query_figures(bench: Bench) -> Iterator[Figure]:
    """Bounds and times of 1,000 partitions, with opening, of states made of records.

    The records and the index are real; the segments that they name are not there, and
    nothing that is asked here needs them.
    """
    for runs in (100_000, 1_000_000):
        place = bench.place()
        name_runs(place, 1_000, runs)
        at = STARTED_MS + runs // 2_000 * 1000
        sides: dict[str, Callable[[], object]] = {
            "empty": lambda: None,
            "open": partial(open_log, place),
            "open + bounds": partial(ask_bounds, place),
            "open + by time": partial(ask_time, place, at),
        }
        log = open_log(place)
        sides["bounds"] = log.bounds
        sides["by time"] = partial(log.offsets_at, at, range(1_000))
        seconds = turns(bench.rounds, sides)
        for name in list(sides)[1:]:
            values = [1000 * one for one in seconds[name]]
            yield figure(f"{name}, {runs:,} segments", values, "ms", "< 10")
    merged = new_log(bench.place(), partitions=1_000, fsync="never")
    times = merge_epochs(merged, 1_000, 8)
    asked = turns(
        bench.rounds, {"by time": partial(merged.offsets_at, times[4], range(1_000))}
    )
    values = [1000 * one for one in asked["by time"]]
    yield figure("by time, in merged runs of 1,000", values, "ms", "< 10")
    commit_unmerged(place := bench.place(), 10_000)
    first = {"log": partial(read_first, place), "stream": partial(open_first, place)}
    took = turns(bench.rounds, first)
    for name in first:
        values = [1000 * one for one in took[name]]
        yield figure(
            f"first row of 10,000 unmerged commits, {name}", values, "ms", "< 200"
        )


def commit_unmerged(place: Path, commits: int) -> None:
    """A topic whose commits of 100 rows each have a segment of their own."""
    settings = Settings(merge_files=commits + 1, inline_size=0)
    store = DiskLogStore(LocalStorage(place, fsync="never"), settings)
    [rows] = many_rows(100, 1)
    with closing(store.create(TOPIC, rows.schema, 1)) as log:
        for number in range(commits):
            append(log, [rows], "bench", number)


def read_first(place: Path) -> None:
    """Open the topic, and read its first batch."""
    with closing(open_log(place)) as log:
        assert log.read(0, 0, max_rows=100, max_bytes=MANY).rows is not None


def open_first(place: Path) -> None:
    """The same through what users hold."""
    with streamfactory.open(properties(place)) as batches:
        assert next(iter(batches)).num_rows == 100


def merge_epochs(log: DiskLog, partitions: int, epochs: int) -> list[int]:
    """Real epochs in all partitions, merged; answers when they were appended."""
    times = []
    for number in range(epochs):
        stage = log.stage(uuid.uuid4().hex)
        for partition in range(partitions):
            stage.append(partition, few_rows(number))
        log.commit(Epoch(None, number, [stage.seal()], Summary(partitions)))
        times.append(int(log.clock()))
        time.sleep(0.01)
    log.compact()
    return times


def ask_bounds(place: Path) -> object:
    """Open, and ask for all partitions."""
    return open_log(place).bounds()


def ask_time(place: Path, at: int) -> object:
    """Open, and ask for a time in all partitions."""
    return open_log(place).offsets_at(at, range(1_000))


def name_runs(place: Path, partitions: int, runs: int) -> None:
    """A topic whose records name so many segments of one run each."""
    log = new_log(place, partitions=partitions, fsync="never")
    steps = runs // partitions
    share = max(1, steps // 10)
    for begin in range(0, steps, share):
        named = [
            synthetic(partition, step)
            for step in range(begin, min(begin + share, steps))
            for partition in range(partitions)
        ]
        log.journal.publish(partial(log.journal.record, segments=named))
        log.compact()
    log.close()


def synthetic(partition: int, step: int) -> Segment:
    """A thousand rows, a second behind those before."""
    at = STARTED_MS + step * 1000
    name = f"data/{partition:04d}-{step:06d}.arrow"
    run = Run(partition, step * 1000, 1000, name, 0, (1000,), 57_000, at, at)
    return Segment(name, 57_000, 0, full=True, runs=(run,))
