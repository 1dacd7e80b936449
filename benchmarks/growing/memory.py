"""What a reader and a task keep in memory while much is read."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.disklog.memory import forget_peak, peak
from benchmarks.disklog.throughput import aggregate
from benchmarks.disklog.topic import (
    LARGE,
    append,
    few_rows,
    latest,
    many_rows,
    new_log,
    properties,
)
from benchmarks.growing.curves import CONSTANT, Curve, powers
from benchmarks.measuring.children import answer, child

import streamfactory
from streamfactory.spark import tasks
from streamfactory.wiring.config.configure import configure
from streamfactory.wiring.config.definition import from_mapping
from streamfactory.wiring.microbatch import Planner
from streamfactory.wiring.plugins.manager import default_manager
from streamfactory.wiring.reading.source import Source

if TYPE_CHECKING:
    from collections.abc import Iterator

EPOCH = 128 << 20
"""Bytes of a commit."""


def by_bytes(folder: Path, most: int) -> Iterator[Curve]:
    """Peaks of a reader and of a task that read a topic from its first row."""
    place = folder / "bytes"
    log = new_log(place, fsync="never")
    each = many_rows(LARGE, 8 << 20)
    size = sum(batch.nbytes for batch in each)
    found: dict[str, dict[int, float]] = {"reader": {}, "task": {}}
    for wanted in powers(min(640, most // 4), most, 4):
        rows = (wanted << 20) // size * sum(batch.num_rows for batch in each)
        while latest(log) < rows:
            append(log, each * max(1, min(EPOCH, wanted << 20) // size))
        for name, values in found.items():
            values[wanted] = answer(child(name, str(place)))
    log.close()
    reason = "one batch, and the mapped pages of two segments, of 64 MB each"
    for name, values in found.items():
        title = f"peak of a {name} above its start"
        yield Curve(title, "MB read", "MB", values, CONSTANT, reason)


def reader_child(place: str) -> float:
    """Megabytes that `streamfactory.open` adds."""
    with streamfactory.open(properties(Path(place))) as stream:
        aggregate(few_rows(0))  # loads what Arrow loads once
        start = forget_peak()
        for batch in stream:
            aggregate(batch.rows)
        return (peak() - start) / 1e6


def task_child(place: str) -> float:
    """Megabytes that the code of a Spark task adds, without Spark."""
    given = {**properties(Path(place)), "startingOffsets": "earliest"}
    made = configure(from_mapping(given), default_manager(), use="spark")
    with closing(Source(made)) as source:
        ranges, schema = Planner(source).batch(), source.schema
    aggregate(few_rows(0))
    start = forget_peak()
    for wanted in ranges:
        for rows in tasks.read(made.config, wanted, schema):
            aggregate(rows)
    return (peak() - start) / 1e6
