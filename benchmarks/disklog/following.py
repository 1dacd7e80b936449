"""How soon another process has what was published."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.disklog.topic import MANY, append, few_rows, new_log, open_log
from benchmarks.measuring.children import answer, child
from benchmarks.measuring.figures import figure

from streamfactory.arrowlog.disk import LocalStorage
from streamfactory.arrowlog.disk.watching import PollingWatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.disklog.topic import Bench
    from benchmarks.measuring.figures import Figure

    from streamfactory.arrowlog.disk import Storage, Watch


class Stamped(LocalStorage):
    """Knows when a record was published: linked, and not yet synced."""

    linked = 0
    """Of the first since it was set to 0: a merge may follow."""

    def sync_folder(self, path: Path) -> None:
        """Called right after the link."""
        if path.name == "log" and not self.linked:
            self.linked = time.monotonic_ns()
        super().sync_folder(path)


class Polled(LocalStorage):
    """A folder without notifications of the kernel."""

    def watch(self, folder: str) -> Watch:
        """Look again and again."""
        return PollingWatch(0.0005, 0.005)


def following_figures(bench: Bench) -> Iterator[Figure]:
    """Time from a record's publication until another process has its rows.

    Bare: until another process has read a small file that was linked and announced.
    """
    names = ("bare", "kernel", "polling")
    halves: dict[str, list[float]] = {}
    tails: dict[str, list[float]] = {}
    for _ in range(bench.rounds):
        for how in random.sample(names, len(names)):
            linked, returned, seen = follow(bench.place(), how, 300)
            for since, stamps in (("link", linked), ("return", returned)):
                pairs = zip(stamps, seen, strict=True)
                late = sorted((there - here) / 1e6 for here, there in pairs)
                name = f"{how}, from the {since}"
                halves.setdefault(name, []).append(late[len(late) // 2])
                tails.setdefault(name, []).append(late[len(late) * 99 // 100])
    for name, values in halves.items():
        goal = "< 1" if name.startswith("kernel") else "none"
        yield figure(f"follower, {name}, p50", values, "ms", "none")
        yield figure(f"follower, {name}, p99", tails[name], "ms", goal)


def follow(place: Path, how: str, epochs: int) -> tuple[list[int], ...]:
    """When each epoch was linked, had returned, and was seen."""
    log = new_log(place)
    # The log makes its storage itself, out of the store's.
    log.storage.__class__ = Stamped
    stamps: Any = log.storage
    linked, returned = [], []
    running = child("follow", str(place), how, str(epochs))
    assert running.stdout is not None
    running.stdout.readline()
    for number in range(epochs):
        time.sleep(random.random() * 0.004)
        stamps.linked = 0
        if how == "bare":
            stamps.publish(f"log/bare-{number}", b"x" * 500)
        else:
            append(log, [few_rows(number)])
        returned.append(time.monotonic_ns())
        linked.append(stamps.linked)
    seen: list[int] = answer(running)
    log.close()
    return linked, returned, seen


def follow_child(place: str, how: str, epochs: str) -> list[int]:
    """When each epoch's rows were there."""
    log = open_log(Path(place))
    if how == "polling":
        log.storage.__class__ = Polled
    print("ready", flush=True)
    if how == "bare":
        return follow_bare(log.storage, int(epochs))
    seen: list[int] = []
    while len(seen) < int(epochs):
        at = len(seen)
        part = log.read(0, at, max_rows=1, max_bytes=MANY)
        if part.rows is None:
            log.wait(0, at, 10.0)
            continue
        assert part.rows.column("offset")[0].as_py() == at
        seen.append(time.monotonic_ns())
    return seen


def follow_bare(storage: Storage, files: int) -> list[int]:
    """When each file was read."""
    watch = storage.watch("log")
    seen: list[int] = []
    while len(seen) < files:
        try:
            storage.read(f"log/bare-{len(seen)}")
        except FileNotFoundError:
            watch.wait(10.0)
            continue
        seen.append(time.monotonic_ns())
    watch.close()
    return seen
