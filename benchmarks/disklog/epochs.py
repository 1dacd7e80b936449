"""Small epochs: how many a second, durable, and what many of them leave behind."""

from __future__ import annotations

import shutil
import threading
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.disklog.topic import append, few_rows, new_log, open_log, sync
from benchmarks.measuring.children import answer, child
from benchmarks.measuring.figures import figure, ratios, shuffled, turns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.disklog.topic import Bench
    from benchmarks.measuring.figures import Figure

    from streamfactory.arrowlog.disk import DiskLog


FILES: Final = 200
"""Small files that are created beside the epochs, for each tenth of them."""


def committing_figures(bench: Bench) -> Iterator[Figure]:
    """Epochs a second of many writers, each epoch on the medium when it returns."""
    seconds = 1.0
    place = bench.place()
    log = new_log(place)
    counts: dict[str, list[float]] = {}
    for _ in range(bench.rounds):
        kinds: dict[str, Callable[[], float]] = {
            "raw": lambda: commit_raw(bench.folder / "raw", seconds),
            "1 thread": lambda: commit_threads(log, 1, seconds),
            "8 threads": lambda: commit_threads(log, 8, seconds),
            "32 threads": lambda: commit_threads(log, 32, seconds),
            "4 processes": lambda: commit_processes(place, 4, seconds),
        }
        for name, kind in shuffled(kinds):
            counts.setdefault(name, []).append(kind() / seconds)
    log.close()
    yield figure("write + fsync of a small file", counts["raw"], "a second", "none")
    for name in ("1 thread", "8 threads", "32 threads", "4 processes"):
        yield figure(f"epochs, {name}", counts[name], "a second", "none")
        shares = ratios(counts[name], counts["raw"])
        yield figure(f"epochs, {name}", shares, "x raw", "none")
        if name != "1 thread":
            shares = ratios(counts[name], counts["1 thread"])
            yield figure(f"epochs, {name}", shares, "x one", "> 1")


def create_files(place: Path, number: int) -> float:
    """Seconds that a small file takes; a small epoch has two, rows and record."""
    place.mkdir()
    message = few_rows(0).serialize().to_pybytes()
    begun = time.perf_counter()
    for name in range(number):
        (place / str(name)).write_bytes(message)
    seconds = time.perf_counter() - begun
    shutil.rmtree(place)
    return seconds / number


def commit_raw(place: Path, seconds: float) -> int:
    """Small files with their names on the medium."""
    place.mkdir(exist_ok=True)
    message = few_rows(0).serialize().to_pybytes()
    done, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        path = place / str(done)
        path.write_bytes(message)
        sync(path)
        sync(place)
        done += 1
    shutil.rmtree(place)
    return done


def commit_threads(log: DiskLog, threads: int, seconds: float) -> int:
    """Writers of one process, each with separate epochs."""
    counts = [0] * threads
    until = time.monotonic() + seconds

    def write(number: int) -> None:
        writer = uuid.uuid4().hex
        log.claim(writer, writer)
        while time.monotonic() < until:
            append(log, [few_rows(counts[number])], writer, counts[number])
            counts[number] += 1

    running = [threading.Thread(target=write, args=(n,)) for n in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return sum(counts)


def commit_processes(place: Path, processes: int, seconds: float) -> int:
    """Writers in processes of their own, which begin together."""
    at = time.monotonic() + 1
    running = [
        child("commit", str(place), str(at), str(seconds)) for _ in range(processes)
    ]
    return sum(answer(one) for one in running)


def commit_child(place: str, at: str, seconds: str) -> int:
    """One writer in a separate process."""
    log = open_log(Path(place))
    time.sleep(max(0.0, float(at) - time.monotonic()))
    return commit_threads(log, 1, float(seconds))


def counting_figures(bench: Bench) -> Iterator[Figure]:
    """Many epochs of few rows: what they cost, and what is left of them."""
    epochs = 100_000 if bench.full else 5_000
    place = bench.place()
    log = new_log(place, fsync="never")
    parts, least = [], []
    for part in range(10):
        begun = time.perf_counter()
        for number in range(epochs // 10):
            append(log, [few_rows(number)], "bench", part * epochs // 10 + number)
        parts.append((time.perf_counter() - begun) / (epochs // 10) * 1e3)
        least.append(2e3 * create_files(bench.folder / "small", FILES))
    log.close()
    title = f"{epochs:,} small epochs"
    yield figure(f"{title}, each, fsync=never", parts, "ms", "none", ceiling=least)
    last = [parts[-1] / parts[0]]
    yield figure(f"{title}, last tenth over first", last, "x", "<= 1.2")
    for folder in ("data", "log", "index"):
        files = sum(1 for _ in place.glob(f"*/*/{folder}/*"))
        yield figure(f"{title}, files in {folder}", [files], "files", "< 1000")
    opened = turns(bench.rounds, {"open": lambda: open_log(place).bounds()})["open"]
    yield figure(f"{title}, opening", [1000 * s for s in opened], "ms", "< 10")
