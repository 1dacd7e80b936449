"""W3, W5: writers in processes of their own, killed, or beside one another."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from streamfactory.conformance.case import case
from streamfactory.conformance.cases.writing import WRITER, seen
from streamfactory.conformance.children import Nursery, Task
from streamfactory.conformance.expectations import expect, require
from streamfactory.conformance.harness import WritesRows
from streamfactory.conformance.moments import Moment, pick, spread
from streamfactory.conformance.roles import Course, Epoch, Place, write_epoch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfactory.conformance.bench import Bench

_CLAIMS: Final = ("durable", "shared", "idempotent", "epoch_visibility=whole")
_KILLS: Final = 12
_ROWS: Final = 6
_RACES: Final = 5
_HEAD_START: Final = 0.2
"""Seconds in which a process has staged its epoch."""
_HOLD: Final = 0.3
"""Seconds for which one process is held while the other one commits."""
_NEEDS: Final = (
    "a_repeated_epoch_has_no_effect",
    "the_last_epoch_and_its_position_are_remembered",
)


def _numbers(epoch: int, *, other: bool = False) -> list[int]:
    """The rows of an epoch; other ones for a try that writes other content."""
    first = 2 * _ROWS * epoch + _ROWS * other
    return list(range(first, first + _ROWS))


def _epoch(bench: Bench, number: int, rows: Sequence[int]) -> Epoch:
    half = len(rows) // 2
    return Epoch.of(bench, number, rows[:half], rows[half:])


@case(
    "W5",
    claims=_CLAIMS,
    abilities=(WritesRows,),
    writing=True,
    slow=True,
    hint="the epoch is marked before, or after, its rows in another step, and the next "
    "instance does not finish what was begun",
    needs=_NEEDS,
)
def a_killed_commit_is_finished_or_never_was(bench: Bench) -> None:
    """A writer killed inside commit and restarted writes its epoch once, and whole."""
    bench.create(partitions=2)
    place = Place.of(bench.configured("write"))
    nursery = bench.closing(Nursery())

    def write(epoch: int, rows: Sequence[int], moment: Moment | None) -> Any:
        task = (place, WRITER, _epoch(bench, epoch, rows), Course(moment))
        [ended] = nursery.run(Task(write_epoch, task))
        return ended.result()

    kept = _numbers(0)
    _, calls, outside = write(0, kept, None)
    for at, way in enumerate(spread(_KILLS, bench.chance())):
        moment = pick(way, calls, outside)
        epoch = 1 + at
        mine, theirs = _numbers(epoch), _numbers(epoch, other=at % 2 == 1)
        bench.note(f"commit({epoch}, {mine}): killed before {moment}")
        write(epoch, mine, moment)
        bench.note(f"restart: last(), commit({epoch}, {theirs}) where it is not there")
        became = write(epoch, theirs, None)
        if became[1]:
            _, calls, outside = became
        found = seen(bench)
        new = [number for number in found if number not in kept]
        require(
            new in (mine, theirs),
            f"after a kill before {moment} of commit({epoch}) and a restart the "
            f"rows {new} are visible, wanted {mine} or {theirs}",
        )
        kept += new
        expect(found, sorted(kept), "rows visible of all epochs")


@case(
    "W3",
    claims=_CLAIMS,
    abilities=(WritesRows,),
    writing=True,
    slow=True,
    hint="the lock does not exclude other processes",
    needs=(*_NEEDS, "of_two_instances_that_commit_at_once_one_writes"),
)
def processes_that_commit_at_once_write_each_epoch_once(bench: Bench) -> None:
    """Two processes that commit at once, as one writer and as two, write all once."""
    bench.create(partitions=2)
    place = Place.of(bench.configured("write"))
    nursery = bench.closing(Nursery())
    chance = bench.chance()
    kept: list[int] = []
    calls = outside = 0
    for first, second in (("one", "other"), (WRITER, WRITER)):
        course = Course()
        for epoch, way in enumerate([None, *spread(_RACES, chance)]):
            mine = _numbers(len(kept) + epoch)
            theirs = _numbers(len(kept) + epoch, other=True)
            start = time.monotonic() + _HEAD_START
            if way is not None:
                course = Course(pick(way, calls, outside), _HOLD, commit=start)
            late = Course(begin=start + _HOLD / 4)
            bench.note(f"{first} commits {epoch}, held before {course.moment}")
            bench.note(f"another process commits {epoch} as {second} meanwhile")
            both = nursery.run(
                Task(write_epoch, (place, first, _epoch(bench, epoch, mine), course)),
                Task(write_epoch, (place, second, _epoch(bench, epoch, theirs), late)),
            )
            (outcome, *counted), (other, *_) = (ended.result() for ended in both)
            if outcome == "committed":
                calls, outside = counted
            new = [number for number in seen(bench) if number not in kept]
            wanted = [sorted(mine + theirs)] if first != second else [mine, theirs]
            require(
                new in wanted,
                f"the first process returned {outcome}, the other {other}: "
                f"visible are {new}, wanted {' or '.join(map(str, wanted))}",
            )
            kept += new
