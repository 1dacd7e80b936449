"""What `flight` makes of a bare Flight server: the same batches, in the same rounds.

    python benchmarks/flight.py [--json] [--rounds N] [--minutes M]

Servers are other processes. Ratios are medians of rounds that take turns; nothing is
gated. Bare is pyarrow's Flight: a stream of a table in memory, a put whose batches are
kept, an echo. Ours is written and read by the backend, and its puts are committed;
both sides are connected, and the topic is there.
Beside the put into a durable log stands what it makes of a bare put followed by a file
that is written and synced, and the share of a bare put that is left where the file
takes longer and is written while the rows arrive: the medium is part of what is
measured. Beside the time from
publishing to receiving stand that of a writer without an id, whose put is one action
rather than a message of an open call, an action of the bare server, and a relay: one
that hands each batch of a publisher's call to a follower's, and does nothing else.

The last figure is the memory of a server over a folder while eight writers and eight
readers use it, one of whom has stalled: at the end, as a multiple of what it was after
the first quarter. ``--minutes 10`` shows more than the default does.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.flight as fl

# A command's path is its own folder; what benchmarks share is imported from above it.
sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.flights.bare import (
    VALIDATED,
    actions_bare,
    get_bare,
    put_bare,
    serve_bare,
    trips_bare,
    trips_relayed,
)
from benchmarks.flights.crowd import crowd
from benchmarks.flights.ours import Topic, trips_ours
from benchmarks.measuring.figures import (
    AGAIN,
    figure,
    itself,
    ratios,
    report,
    seconds,
    shuffled,
    turns,
)
from benchmarks.measuring.rows import batches

import streamfactory

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from benchmarks.measuring.figures import Figure

LARGE, SMALL = 65_536, 1_000
"""Rows of a batch."""
SIZE = 96 * 1024**2
TRIPS, TRIP_ROWS = 300, 100


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--minutes", type=float, default=0.5)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        serve_bare(*map(int, arguments.child))
        return
    figures = measured(arguments.rounds, arguments.minutes)
    report(figures, as_json=arguments.json)


def measured(rounds: int, minutes: float) -> Iterator[Figure]:
    """All figures."""
    with ExitStack() as open_:
        folder = Path(open_.enter_context(tempfile.TemporaryDirectory()))
        bare = open_.enter_context(bare_server())
        memory = open_.enter_context(streamfactory.serve(memory=True)).location
        disk = open_.enter_context(streamfactory.serve(path=str(folder))).location
        yield from get_figures(rounds, bare, memory, disk)
        yield from put_figures(rounds, bare, memory, disk, folder)
        yield trip_figure(rounds, bare, memory)
    yield crowd(minutes * 60)


@contextmanager
def bare_server() -> Iterator[fl.FlightClient]:
    """A client of a plain pyarrow server, in a separate process."""
    command = [sys.executable, __file__, "--child", str(LARGE), str(SIZE)]
    with subprocess.Popen(  # noqa: S603 - this program
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        port = int(process.stdout.readline())
        with fl.connect(f"grpc://127.0.0.1:{port}") as client:
            yield client
        process.stdin.close()


def get_figures(
    rounds: int, bare: fl.FlightClient, memory: str, disk: str
) -> Iterator[Figure]:
    """Reading a topic from its first row."""
    large = batches(LARGE, SIZE)
    put_small(memory, "get-small")
    with (
        Topic(memory, "get") as kept,
        Topic(disk, "get") as durable,
        Topic(memory, "get-small") as small,
    ):
        kept.put(large)
        durable.put(large)
        sides = {
            "bare": lambda: get_bare(bare),
            "memory log": kept.get,
            "durable log": durable.get,
            "1k rows": small.get,
        }
        took = turns(rounds, sides)
        for topic in (kept, durable, small):
            topic.delete()
    for name, goal in (("memory log", ">= 0.95"), ("durable log", ">= 0.8")):
        values = ratios(took["bare"], took[name])
        title, again = f"get, 64k rows, {name}", itself(took)
        yield figure(title, values, "x bare", goal, again=again)
    values = ratios(took["memory log"], took["1k rows"])
    yield figure("get, 1k rows coalesced, memory log", values, "x 64k", ">= 0.8")


def put_small(location: str, topic: str) -> None:
    """Put batches of 1,000 rows plainly: the server keeps them as they come."""
    table = pa.Table.from_batches(batches(LARGE, SIZE))
    with fl.connect(location) as client:
        descriptor = fl.FlightDescriptor.for_path(topic)
        writer, _ = client.do_put(descriptor, table.schema)
        writer.write_table(table, max_chunksize=SMALL)
        writer.close()


def put_figures(
    rounds: int, bare: fl.FlightClient, memory: str, disk: str, folder: Path
) -> Iterator[Figure]:
    """Writing an epoch, until it is committed."""
    large = batches(LARGE, SIZE)
    small = pa.Table.from_batches(large).to_batches(max_chunksize=SMALL)
    took: dict[str, list[float]] = defaultdict(list)
    with (
        Topic(memory, "memory") as kept,
        Topic(disk, "durable") as durable,
        Topic(memory, "small") as few,
    ):
        sides = {
            "bare": lambda: put_bare(bare, large),
            AGAIN: lambda: put_bare(bare, large),
            "validated": lambda: put_bare(bare, large, VALIDATED),
            "memory log": lambda: kept.put(large),
            "durable log": lambda: durable.put(large),
            "1k rows": lambda: few.put(small),
            "file": lambda: write_file(Path(folder, "file"), large),
        }
        for number in range(rounds + 1):
            one = {name: seconds(side) for name, side in shuffled(sides)}
            for topic in (kept, durable, few):
                topic.truncate()
            if number:
                for name, value in one.items():
                    took[name].append(value)
    for name, goal in (("memory log", ">= 0.95"), ("durable log", ">= 0.8")):
        values = ratios(took["bare"], took[name])
        title, again = f"put, 64k rows, {name}", ratios(took["bare"], took[AGAIN])
        beside, ceiling = medium(took), list[float]()
        if name == "memory log":
            beside, ceiling = {}, ratios(took["bare"], took["validated"])
        yield figure(
            title, values, "x bare", goal, beside, ceiling=ceiling, again=again
        )
    values = ratios(took["memory log"], took["1k rows"])
    yield figure("put, 1k rows coalesced, memory log", values, "x 64k", ">= 0.8")


def medium(took: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """What the medium allows of a bare put, and what the durable log makes of it."""
    pairs = list(zip(took["bare"], took["file"], strict=True))
    both = ratios([put + file for put, file in pairs], took["durable log"])
    most = ratios(took["bare"], [max(pair) for pair in pairs])
    return {
        "x bare, then a file": statistics.median(both),
        "a file written meanwhile would be x bare": statistics.median(most),
    }


def write_file(path: Path, rows: Sequence[pa.RecordBatch]) -> None:
    """Write an Arrow file to the medium, as a durable log has to."""
    with path.open("wb") as file:
        with pa.ipc.new_file(file, rows[0].schema) as writer:
            for batch in rows:
                writer.write_batch(batch)
        file.flush()
        os.fsync(file.fileno())


def trip_figure(rounds: int, bare: fl.FlightClient, memory: str) -> Figure:
    """From before a put until a follower has its rows, as a multiple of an echo."""
    rows = batches(TRIP_ROWS, 1)[0]
    sides = {
        "echo": lambda: trips_bare(bare, rows, TRIPS),
        AGAIN: lambda: trips_bare(bare, rows, TRIPS),
        "ours": lambda: trips_ours(memory, rows, TRIPS, "w"),
        "unnamed": lambda: trips_ours(memory, rows, TRIPS, None),
        "relay": lambda: trips_relayed(bare, rows, TRIPS),
        "action": lambda: actions_bare(bare, TRIPS),
    }
    took: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, trips in shuffled(sides):
            took[name].append(trips())
    echo = took["echo"]
    values = ratios(took["ours"], echo)
    beside = {
        "without a writer id": statistics.median(ratios(took["unnamed"], echo)),
        "a bare action": statistics.median(ratios(took["action"], echo)),
        "echo in microseconds": statistics.median(echo) * 1e6,
    }
    name = f"publish to receive, {TRIP_ROWS} rows, p50"
    ceiling = ratios(took["relay"], echo)
    again = ratios(echo, took[AGAIN])
    return figure(name, values, "x echo", "<= 2", beside, ceiling=ceiling, again=again)


if __name__ == "__main__":
    main()
