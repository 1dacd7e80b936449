"""What a topic of the log on disk costs: by partitions, tasks, commits and rows."""

from __future__ import annotations

import uuid
from collections import defaultdict
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Final

from benchmarks.disklog.queries import name_runs
from benchmarks.disklog.topic import (
    LARGE,
    MANY,
    append,
    few_rows,
    latest,
    many_rows,
    new_log,
    open_log,
    properties,
)
from benchmarks.growing.curves import (
    CONSTANT,
    LINEAR,
    LOGARITHMIC,
    Curve,
    least,
    powers,
)

from streamfactory.wiring.config.configure import configure
from streamfactory.wiring.config.definition import from_mapping
from streamfactory.wiring.microbatch import Planner
from streamfactory.wiring.plugins.manager import default_manager
from streamfactory.wiring.reading.source import Source

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from streamfactory.arrowlog.disk import DiskLog

LAST_APPENDS: Final = 50
"""Commits whose mean cost counts as that of one."""
_BY_COMMITS: Final = {
    "opening": ("ms", LOGARITHMIC, "the index is read, whose records are merged"),
    "tail": ("ms", LOGARITHMIC, "opening, and one look-up in the index"),
    "append": ("ms", CONSTANT, "one record and one segment, and their share of merges"),
    "files": ("files", LOGARITHMIC, "segments and records are merged by levels"),
}


def by_partitions(folder: Path, most: int) -> Iterator[Curve]:
    """Plan of a micro-batch, bounds, and the offset in a checkpoint."""
    found: dict[str, dict[int, float]] = defaultdict(dict)
    for count in powers(1, most):
        place = folder / uuid.uuid4().hex
        name_runs(place, count, count)
        given = {**properties(place), "startingOffsets": "earliest"}
        made = configure(from_mapping(given), default_manager(), use="spark")
        with closing(Source(made)) as source, closing(open_log(place)) as log:
            found["plan"][count] = least(partial(plan, source))
            found["bounds"][count] = least(log.bounds)
            planner = Planner(source)
            text = planner.latest(planner.initial()).to_text()
            found["checkpoint"][count] = len(text) / 1000
    each = "each partition has bounds and a range"
    over = "partitions"
    yield Curve("plan", over, "ms", found["plan"], LINEAR, each)
    yield Curve("bounds", over, "ms", found["bounds"], LINEAR, each)
    text_ = "an offset names each partition"
    yield Curve(
        "offset in a checkpoint", over, "kB", found["checkpoint"], LINEAR, text_
    )


def plan(source: Source) -> None:
    """From the first offset to the ranges of all partitions."""
    planner = Planner(source)
    start = planner.initial()
    planner.ranges(start, planner.latest(start))


def by_tasks(folder: Path, most: int) -> Iterator[Curve]:
    """Plan of a micro-batch of a million rows, cut into tasks."""
    found: dict[int, float] = {}
    place = folder / "tasks"
    log = new_log(place, fsync="never")
    append(log, many_rows(LARGE, 1)[:1] * 16)
    log.close()
    for count in powers(10, most):
        given = {**properties(place), "startingOffsets": "earliest"}
        given["minPartitions"] = str(count)
        made = configure(from_mapping(given), default_manager(), use="spark")
        with closing(Source(made)) as source:
            found[count] = least(partial(plan, source))
    yield Curve("plan", "tasks", "ms", found, LINEAR, "each task has a range")


def by_commits(folder: Path, most: int) -> Iterator[Curve]:
    """Opening, the last row, one more commit, and files, after commits of one row."""
    found: dict[str, dict[int, float]] = defaultdict(dict)
    place = folder / "commits"
    log = new_log(place, fsync="never")
    done = 0

    def commit() -> None:
        nonlocal done
        append(log, [few_rows(done)], "bench", done)
        done += 1

    def commits(number: int) -> None:
        for _ in range(number):
            commit()

    for count in powers(1, most):
        while done < count - min(count, LAST_APPENDS):
            commit()
        last = count - done
        spent = least(partial(commits, last), 1)
        found["append"][count] = spent / last
        found["files"][count] = sum(1 for _ in place.rglob("*"))
        found["opening"][count] = least(lambda: open_log(place).bounds())
        found["tail"][count] = least(lambda: last_row(open_log(place)))
    log.close()
    for name, (unit, growth, reason) in _BY_COMMITS.items():
        yield Curve(name, "commits", unit, found[name], growth, reason)


def by_rows(folder: Path, most: int) -> Iterator[Curve]:
    """Opening, the last row and a row by its time, in a topic of one partition."""
    found: dict[str, dict[int, float]] = defaultdict(dict)
    place = folder / "rows"
    log = new_log(place, fsync="never")
    batch = many_rows(LARGE, 1)[0]
    for count in powers(100_000, most):
        while (missing := count - latest(log)) > 0:
            some, rest = divmod(min(missing, 16 * LARGE), LARGE)
            append(log, [*[batch] * some, *([batch[:rest]] if rest else [])])
        log.compact()  # else it is the number of commits that grows
        at = int(log.clock())
        found["opening"][count] = least(lambda: open_log(place).bounds())
        found["tail"][count] = least(lambda: last_row(open_log(place)))
        by_time = least(lambda: open_log(place).offsets_at(at, [0]))  # noqa: B023
        found["offset by time"][count] = by_time
    log.close()
    reason = "segments have up to 64 MB: the index names one for a million rows"
    for name, values in found.items():
        yield Curve(name, "rows", "ms", values, LOGARITHMIC, reason)


def last_row(log: DiskLog) -> None:
    """Read it."""
    part = log.read(0, latest(log) - 1, max_rows=1, max_bytes=MANY)
    assert part.rows is not None
    log.close()
