"""What `shm` makes of a raw Unix socket and of a bare copy: the same rows in turns.

    python benchmarks/shm.py [--json] [--rounds N]

The writer is another process. Each batch is an epoch, which `put` commits; the reader
maps it, and validates its values. Ratios are medians of rounds that take turns; nothing
is gated. Raw is `sendall` of 1 MB into `recv_into`, as in benchmarks/sockets.py; the
ceiling is a copy of the same bytes within one process. Beside the ratio of seconds
stands that of processor time, of the busier process each.

The ceiling of a round trip is two puts and two reads of a `memory` stream in one
process: the framework by itself, without a ring, and without another process to wake.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

# A command's path is its own folder; what benchmarks share is imported from above it.
sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from benchmarks.measuring.children import answer, child
from benchmarks.measuring.figures import figure, ratios, report, shuffled
from benchmarks.wire.moved import (
    TRIPS,
    VOLUME,
    Watch,
    batch_of_one,
    distinct,
    enough,
)
from benchmarks.wire.raw import (
    bare_echo,
    eventfd_echo,
    raw_sender,
    read_raw,
    trips_bare,
    trips_eventfd,
)

import streamfactory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from benchmarks.measuring.figures import Figure

    from streamfactory import Stream

GOALS = {64_000: 5.0, 8_000: 5.0}
"""Times the throughput of a raw Unix socket, by rows of a batch."""
RUN = 400
"""Megabytes: six laps of a ring, the first of which takes memory."""
AGAIN = "raw again"
PATIENCE = 120.0


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--megabytes", type=int, default=RUN, help="of a run")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    os.environ.setdefault(VOLUME, str(arguments.megabytes))
    if arguments.child:
        what, where, rows = arguments.child
        sides = {"ours": write_ours, "our_echo": our_echo, "eventfd": event_echo}
        wire = {"raw": raw_sender, "bare_echo": bare_echo}
        found = (
            sides[what](where, int(rows))
            if what in sides
            else wire[what]("unix", where, int(rows))
        )
        print(json.dumps(found))
        return
    figures = [*stream_figures(arguments.rounds), *trip_figures(arguments.rounds)]
    report(figures, as_json=arguments.json)


def topic(where: str, name: str) -> Mapping[str, str]:
    """A stream in shared memory; where that is not /dev/shm, it is slower."""
    return {
        "streamType": "shm",
        "stream.shm.path": f"/dev/shm/{Path(where).name}",  # noqa: S108
        "stream.shm.topic.name": name,
        "stream.shm.when.full": "block",
    }


# --- figures ----------------------------------------------------------------------


def stream_figures(rounds: int) -> list[Figure]:
    """Throughput, as a multiple of a raw Unix socket."""
    figures = []
    for rows, goal in GOALS.items():
        took, busy = turns(("raw", AGAIN, "ours", "copy"), rounds, measured, rows)
        beside = {
            "by processor time": statistics.median(ratios(busy["raw"], busy["ours"])),
            "ceiling by its processor time": statistics.median(
                ratios(busy["raw"], busy["copy"])
            ),
        }
        figures.append(
            figure(
                f"{rows // 1000}k rows, shm",
                ratios(took["raw"], took["ours"]),
                "x raw unix",
                f">= {goal}",
                beside,
                ceiling=ratios(took["raw"], took["copy"]),
                again=ratios(took["raw"], took[AGAIN]),
            )
        )
    return figures


Seconds = dict[str, list[float]]


def turns(
    sides: Sequence[str],
    rounds: int,
    measure: Callable[..., tuple[float, float]],
    *arguments: object,
) -> tuple[Seconds, Seconds]:
    """Seconds by the clock and of processors, of each side in each round."""
    took: Seconds = {name: [] for name in sides}
    busy: Seconds = {name: [] for name in sides}
    for _ in range(rounds):
        for side, _ in shuffled(took):
            seconds, processor = measure(side, *arguments)
            took[side].append(seconds)
            busy[side].append(processor)
    return took, busy


def measured(side: str, rows: int) -> tuple[float, float]:
    """Seconds of one side, and those of the processor in its busier process."""
    if side == "copy":
        return copied(rows)
    with tempfile.TemporaryDirectory(prefix="sf-bench-") as where:
        name = "ours" if side == "ours" else "raw"
        with child(name, where, str(rows)) as process:
            if side == "ours":
                seconds, busy = read_ours(where)
            else:
                seconds, busy = read_raw("unix", where)
            return seconds, max(busy, answer(process))


def copied(rows: int) -> tuple[float, float]:
    """Copy the bytes of the batches into memory that was used before."""
    found = distinct(rows)
    sources = [np.frombuffer(batch.serialize(), np.uint8) for batch in found]
    target = np.zeros(max(len(one) for one in sources), np.uint8)
    watch = Watch()
    for source, _ in zip(itertools.cycle(sources), enough(found), strict=False):
        target[: len(source)] = source
    return watch.read()


def trip_figures(rounds: int) -> list[Figure]:
    """A row there and back through two topics, against bare echoes, and half of it."""
    sides = ("ours", AGAIN, "eventfd", "bare", "memory")
    took, busy = turns(sides, rounds, trip)
    ours, again = took["ours"], ratios(took[AGAIN], took["ours"])
    half = {
        what: statistics.median(seconds) / 2 * 1e6
        for what, seconds in (
            ("of the processors, us", busy["ours"]),
            ("half of an eventfd's, us", took["eventfd"]),
            ("half of the framework's, of the processor, us", busy["memory"]),
        )
    }
    return [
        figure(
            f"round trip of a row, shm, to {name}",
            ratios(ours, took[side]),
            "x echo",
            goal,
            {"by processor time": statistics.median(ratios(busy["ours"], busy[side]))},
            ceiling=ratios(took["memory"], took[side]),
            again=again,
        )
        for side, name, goal in (
            ("eventfd", "an eventfd", "<= 1.5"),
            ("bare", "a Unix socket", "none"),
        )
    ] + [
        figure(
            "publish to receive of a row, shm, half of the trip",
            [seconds / 2 * 1e6 for seconds in ours],
            "us",
            "< 50",
            half,
            again=again,
        )
    ]


def trip(side: str) -> tuple[float, float]:
    """Median seconds of a round trip, and those of the processor in all processes."""
    if side == "memory":
        return trips_memory()
    sides: dict[str, tuple[str, Callable[[str], tuple[float, float]]]] = {
        "bare": ("bare_echo", lambda where: trips_bare("unix", where)),
        "eventfd": ("eventfd", trips_eventfd),
    }
    name, send = sides.get(side, ("our_echo", trips_ours))
    with (
        tempfile.TemporaryDirectory(prefix="sf-bench-") as where,
        child(name, where, "1") as process,
    ):
        seconds, busy = send(where)
        return seconds, busy + answer(process)


# --- sides ------------------------------------------------------------------------


def opened(where: str, name: str) -> Stream:
    """A stream, as soon as its topic exists."""
    given = topic(where, name)
    folder = Path(given["stream.shm.path"], f"{name}.topic")
    deadline = time.monotonic() + PATIENCE
    while not folder.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(name)
        time.sleep(0.001)
    return streamfactory.open(given, start="earliest", follow=True)


def sink_of(where: str, name: str) -> streamfactory.Sink:
    """A sink of a topic."""
    return streamfactory.open_sink(topic(where, name))


def write_ours(where: str, rows: int) -> float:
    """Put the batches.

    Returns:
        Seconds of the processor.
    """
    found = distinct(rows)
    with sink_of(where, "rows") as sink:
        sink.put(found[0].slice(0, 1))
        watch = Watch()
        for batch in enough(found):
            sink.put(batch)
        busy = watch.read()[1]
        sink.put(found[0].slice(0, 1))
    return busy


def read_ours(where: str) -> tuple[float, float]:
    """Read from the first batch, of one row, to the last one, which has one, too."""
    with opened(where, "rows") as stream:
        counts = received(stream)
        next(counts)
        watch = Watch()
        while next(counts) > 1:
            pass
        found = watch.read()
    remove(where, "rows")
    return found


def received(stream: Stream) -> Iterator[int]:
    """Rows of the batches that come."""
    while True:
        batch = stream.next_batch(PATIENCE)
        if batch is None:
            raise TimeoutError
        yield batch.num_rows


def our_echo(where: str, _rows: int) -> float:
    """Put back each row that comes.

    Returns:
        Seconds of the processor for each trip.
    """
    with opened(where, "there") as there, sink_of(where, "back") as back:
        watch = None
        for _ in range(TRIPS):
            batch = there.next_batch(PATIENCE)
            if batch is None:
                raise TimeoutError
            watch = watch or Watch()
            back.put(batch.rows)
        assert watch is not None
        return watch.read()[1] / TRIPS


def event_echo(where: str, _rows: int) -> float:
    """See `eventfd_echo`."""
    return eventfd_echo(where)


def trips_ours(where: str) -> tuple[float, float]:
    """Put a row and wait for it."""
    row, seconds = batch_of_one(), list[float]()
    with sink_of(where, "there") as there:
        there.put(row)
        with opened(where, "back") as back:
            watch = Watch()
            for number in range(TRIPS):
                started = time.perf_counter()
                if number:
                    there.put(row)
                if back.next_batch(PATIENCE) is None:
                    raise TimeoutError
                seconds.append(time.perf_counter() - started)
            busy = watch.read()[1]
    remove(where, "there", "back")
    return statistics.median(seconds), busy / TRIPS


def trips_memory() -> tuple[float, float]:
    """Put a row and read it, twice, in this process."""
    row, seconds = batch_of_one(), list[float]()
    given = {"streamType": "memory", "stream.memory.topic.name": f"trips-{uuid4()}"}
    with streamfactory.open_sink(given) as sink:
        sink.put(row)
        with streamfactory.open(given, start="latest", follow=True) as stream:
            watch = Watch()
            for _ in range(TRIPS):
                started = time.perf_counter()
                for _ in range(2):
                    sink.put(row)
                    if stream.next_batch(PATIENCE) is None:
                        raise TimeoutError
                seconds.append(time.perf_counter() - started)
            busy = watch.read()[1]
    return statistics.median(seconds), busy / TRIPS


def remove(where: str, *names: str) -> None:
    """Delete topics, and their folder with the last one."""
    from streamfactory.backends.shm.settings import Settings
    from streamfactory.backends.shm.store import ShmLogStore

    root = Path(topic(where, "")["stream.shm.path"])
    store = ShmLogStore(root, Settings())
    for name in names:
        store.delete(name)
    store.close()
    if not list(root.iterdir()):
        root.rmdir()


if __name__ == "__main__":
    main()
