"""What `socket` makes of a raw socket: the same bytes, in the same rounds.

    python benchmarks/sockets.py [--json] [--rounds N]

The sender is another process, on another core where that can be said. Ratios are
medians of rounds that take turns; nothing is gated. Raw is `sendall` of 1 MB into
`recv_into`; of 1k rows it serializes each batch.

The ceiling is a raw socket whose reader validates: it knows how long each message is,
and parses no header. Beside the ratios of seconds stand those of processor time, of the
busier side each, the least of all rounds: what the others come to on a machine that
does nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

# A command's path is its own folder; what benchmarks share is imported from above it.
sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.measuring.children import answer, child
from benchmarks.measuring.figures import figure, ratios, report, shuffled
from benchmarks.wire.moved import MEGABYTES, VOLUME
from benchmarks.wire.ours import our_echo, ours_sender, read_ours, trips_ours
from benchmarks.wire.raw import (
    bare_echo,
    raw_sender,
    read_raw,
    read_validated,
    trips_bare,
    whole_sender,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from benchmarks.measuring.figures import Figure

GOALS = {
    ("tcp", 64_000): 0.95,
    ("tcp", 8_000): 0.8,
    ("tcp", 1_000): 0.85,
    ("unix", 64_000): 0.85,
    ("unix", 8_000): 0.8,
    ("unix", 1_000): 0.85,
}
AGAIN = "raw again"
SIDES = {
    "raw": ("raw_sender", read_raw),
    AGAIN: ("raw_sender", read_raw),
    "validated": ("validated_sender", read_validated),
    "ours": ("ours_sender", read_ours),
}
CHILDREN: dict[str, Callable[[str, str, int], float]] = {
    "raw_sender": raw_sender,
    "validated_sender": whole_sender,
    "ours_sender": ours_sender,
    "bare_echo": bare_echo,
    "our_echo": our_echo,
}


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--megabytes", type=int, default=MEGABYTES, help="of a run")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    os.environ.setdefault(VOLUME, str(arguments.megabytes))
    on_core(0 if arguments.child else 1)
    if arguments.child:
        what, medium, where, rows = arguments.child
        print(json.dumps(CHILDREN[what](medium, where, int(rows))))
        return
    figures = [*stream_figures(arguments.rounds), *trip_figures(arguments.rounds)]
    report(figures, as_json=arguments.json)


def on_core(number: int) -> None:
    """Stay on one core: two processes that meet on one by chance measure chance."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {number % (os.cpu_count() or 1)})


# --- figures ----------------------------------------------------------------------


def stream_figures(rounds: int) -> list[Figure]:
    """Throughput, as a share of raw."""
    runs: dict[tuple[str, int], dict[str, list[tuple[float, float]]]] = {
        key: {name: [] for name in SIDES} for key in GOALS
    }
    for _ in range(rounds):
        for (medium, rows), took in runs.items():
            for name, (sender, read) in shuffled(SIDES):
                took[name].append(run(sender, read, medium, rows))
    return [
        throughput(f"{rows // 1000}k rows, {medium}", took, f">= {GOALS[medium, rows]}")
        for (medium, rows), took in runs.items()
    ]


def throughput(
    name: str, took: Mapping[str, Sequence[tuple[float, float]]], goal: str
) -> Figure:
    """Ours and the ceiling over raw, by the clock, and by the processor beside."""
    clock, busy = (
        {side: [one[number] for one in each] for side, each in took.items()}
        for number in (0, 1)
    )
    beside = {
        f"{side} by processor time": min(busy["raw"]) / min(busy[side])
        for side in ("ours", "validated", AGAIN)
    }
    return figure(
        name,
        ratios(clock["raw"], clock["ours"]),
        "x raw",
        goal,
        beside,
        ceiling=ratios(clock["raw"], clock["validated"]),
        again=ratios(clock["raw"], clock[AGAIN]),
    )


def trip_figures(rounds: int) -> list[Figure]:
    """A row there and back, as a multiple of a bare echo."""
    figures = []
    for medium in ("tcp", "unix"):
        over, again = [], []
        for _ in range(rounds):
            bare, _ = run("bare_echo", trips_bare, medium, 1)
            ours, _ = run("our_echo", trips_ours, medium, 1)
            twice, _ = run("bare_echo", trips_bare, medium, 1)
            over.append(ours / bare)
            again.append(twice / bare)
        name = f"round trip of a row, {medium}"
        figures.append(figure(name, over, "x echo", "<= 1.5", again=again))
    return figures


def run(
    other: str,
    parent: Callable[[str, str], tuple[float, float]],
    medium: str,
    rows: int,
) -> tuple[float, float]:
    """Seconds of the parent's side, over a socket of its own, and of the busier one."""
    with tempfile.TemporaryDirectory() as folder:
        where = folder if medium == "unix" else str(free_ports())
        with child(other, medium, where, str(rows)) as process:
            seconds, busy = parent(medium, where)
            return seconds, max(busy, answer(process))


def free_ports() -> int:
    """The first of two free ports."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as one:
            port = int(one.getsockname()[1])
            try:
                socket.create_server(("127.0.0.1", port + 1)).close()
            except OSError:
                continue
            return port


if __name__ == "__main__":
    main()
