"""What many readers of one process cost, and many writing processes."""

from __future__ import annotations

import threading
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.disklog.epochs import commit_processes
from benchmarks.disklog.memory import forget_peak, peak
from benchmarks.disklog.topic import LARGE, append, many_rows, new_log, properties
from benchmarks.growing.curves import CONSTANT, LINEAR, Curve, least, powers
from benchmarks.measuring.children import answer, child

import streamfactory

if TYPE_CHECKING:
    from collections.abc import Iterator

BATCHES: Final = 16
"""Of 64k rows, that each reader reads."""
SECONDS: Final = 2.0
"""For which processes write."""
TRIES: Final = 3
"""Of which the best counts."""


def by_readers(folder: Path, most: int) -> Iterator[Curve]:
    """Memory, threads, descriptors and time of readers of the same topic."""
    place = folder / "readers"
    log = new_log(place, fsync="never")
    append(log, many_rows(LARGE, 1) * BATCHES)
    log.close()
    found: dict[str, dict[int, float]] = defaultdict(dict)
    for count in powers(1, most, 4):
        for name, value in answer(child("readers", str(place), str(count))).items():
            found[name][count] = value
    over, each = "readers", "each reads all rows, one after the other"
    yield Curve("reading", over, "ms", found["ms"], LINEAR, each)
    held = "they share the mapped pages of the topic; each adds some 20 kB"
    yield Curve("memory", over, "MB", found["MB"], CONSTANT, held)
    yield Curve("threads", over, "threads", found["threads"], CONSTANT, "none is added")
    kept = "files are mapped, and closed"
    yield Curve("descriptors", over, "files", found["files"], CONSTANT, kept)


def readers_child(place: str, count: str) -> dict[str, float]:
    """Open so many readers, and read with all of them in turns."""
    stream = properties(Path(place))
    with streamfactory.open(stream) as first:
        next(iter(first))  # what is loaded once
    with ExitStack() as stack:
        start = forget_peak()
        opened = [
            stack.enter_context(streamfactory.open(stream)) for _ in range(int(count))
        ]

        def read() -> None:
            for _ in zip(*opened, strict=True):
                pass

        spent = least(read, 1)
        rows = [one.position for one in opened]
        assert all(position == rows[0] for position in rows)
        return {
            "ms": spent,
            "MB": (peak() - start) / 1e6,
            "threads": threading.active_count(),
            "files": sum(1 for _ in Path("/proc/self/fd").iterdir()),
        }


def by_writers(folder: Path, most: int) -> Iterator[Curve]:
    """Time between commits of all processes together, each on the medium."""
    place = folder / "writers"
    new_log(place).close()
    values = {}
    for count in powers(1, most, 2):
        done = max(commit_processes(place, count, SECONDS) for _ in range(TRIES))
        values[count] = 1000 * SECONDS / max(1, done)
    reason = "each reads the records of all, and writes its own again if it is late"
    yield Curve("a commit of any writer", "processes", "ms", values, LINEAR, reason)
