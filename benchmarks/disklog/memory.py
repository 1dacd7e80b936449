"""Memory use of a writer of large epochs, and of a follower."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.disklog.throughput import aggregate
from benchmarks.disklog.topic import (
    LARGE,
    SMALL,
    append,
    few_rows,
    latest,
    many_rows,
    new_log,
    open_log,
)
from benchmarks.measuring.children import answer, child
from benchmarks.measuring.figures import figure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.disklog.topic import Bench
    from benchmarks.measuring.figures import Figure


def passing_figures(bench: Bench) -> Iterator[Figure]:
    """Peak memory while much passes: mapped pages of files are counted."""
    total = (20 << 30) if bench.full else (2 << 30)
    peaks: dict[str, list[float]] = {"write": [], "read": []}
    for _ in range(1 if bench.full else min(3, bench.rounds)):
        place = bench.place()
        new_log(place, fsync="never").close()
        running = {name: child(name, str(place), str(total)) for name in peaks}
        for name, one in running.items():
            peaks[name].append(answer(one))
        shutil.rmtree(place)
    for name, values in peaks.items():
        title = f"memory above start, {name} {total >> 30} GB"
        yield figure(title, values, "MB", "<= 200")


def write_child(place: str, total: str) -> float:
    """Append epochs of 512 MB, of large and of small batches in turn.

    No more than 4 GB at a time are there.
    """
    log = open_log(Path(place), fsync="never")
    kinds = [many_rows(rows, 8 << 20) * 64 for rows in (LARGE, SMALL)]
    most = 8 * sum(rows.num_rows for rows in kinds[0])
    start = forget_peak()
    for number in range(int(total) // (512 << 20)):
        append(log, kinds[number % 2])
        while latest(log) - log.bounds()[0].earliest > most:
            time.sleep(0.01)
    append(log, [few_rows(0)])
    return (peak() - start) / 1e6


def read_child(place: str, _: str) -> float:
    """Follow and touch all of it; let go of what was read."""
    log = open_log(Path(place), fsync="never")
    aggregate(few_rows(0))  # loads what Arrow loads once
    at, let_go, start = 0, 0, forget_peak()
    while True:
        part = log.read(0, at, max_rows=LARGE, max_bytes=8 << 20)
        if part.rows is None:
            log.wait(0, at, 10.0)
            continue
        aggregate(part.rows)
        at += part.rows.num_rows
        if part.rows.num_rows == 1:
            return (peak() - start) / 1e6
        if at - let_go > 100 * LARGE:
            log.truncate({0: at})
            let_go = at


def forget_peak() -> float:
    """Memory of this process; resets its peak."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return peak("VmRSS")


def peak(name: str = "VmHWM") -> float:
    """Bytes, pages of mapped files among them."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(name + ":"):
            return float(line.split()[1]) * 1024
    raise KeyError(name)
