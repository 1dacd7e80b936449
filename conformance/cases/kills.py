"""W3, W5: writers in processes of their own, killed, or beside one another."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from streamfactory.conformance.case import case
from streamfactory.conformance.cases.writing import WRITER, seen
from streamfactory.conformance.children import Nursery, Task
from streamfactory.conformance.expectations import expect, require
from streamfactory.conformance.harness import WritesRows
from streamfactory.conformance.moments import Moment, pick, spread
from streamfactory.conformance.roles import (
    Course,
    Epoch,
    Place,
    Race,
    write_epoch,
    write_first,
    write_second,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from streamfactory.conformance.bench import Bench

_CLAIMS: Final = ("durable", "shared", "idempotent", "epoch_visibility=whole")
_KILLS: Final = 12
_ROWS: Final = 6
_RACES: Final = 4
"""In which one process is held inside commit."""
_HOLD: Final = 0.2
"""Seconds for which one process is held while the other one commits, at least."""
_PATIENCE: Final = 3
"""How many times as long as an undisturbed write: the machine may be busy."""
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
        moment = pick(way, calls, range(outside))
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
    blocks = itertools.count()
    kept: list[int] = []

    def race(
        writers: tuple[str, str], epoch: int, moment: Moment | None, longest: float
    ) -> tuple[int, int, float]:
        first, second = writers
        block = next(blocks)
        mine, theirs = _numbers(block), _numbers(block, other=True)
        bench.note(f"{first} commits {epoch}, held before {moment}")
        bench.note(f"another process commits {epoch} as {second} meanwhile")
        with tempfile.TemporaryDirectory() as folder:
            signals = Race(Path(folder), longest)
            one = (place, first, _epoch(bench, epoch, mine), moment, signals)
            other = (place, second, _epoch(bench, epoch, theirs), signals)
            both = nursery.run(Task(write_first, one), Task(write_second, other))
        answers = [ended.result() for ended in both]
        (outcome, calls, outside), (other_outcome, took) = answers
        new = [number for number in seen(bench) if number not in kept]
        wanted = [sorted(mine + theirs)] if first != second else [mine, theirs]
        require(
            new in wanted,
            f"the first process returned {outcome}, the other {other_outcome}: "
            f"visible are {new}, wanted {' or '.join(map(str, wanted))}",
        )
        kept.extend(new)
        return calls, outside, took

    longest = _HOLD
    for writers in (("one", "other"), (WRITER, WRITER)):
        # Not held: the second process writes when the first one has.
        calls, outside, took = race(writers, 0, None, 0.0)
        longest = max(longest, _PATIENCE * took)
        for epoch, moment in enumerate(_moments(calls, outside, chance), 1):
            race(writers, epoch, moment, longest)


def _moments(calls: int, outside: int, chance: random.Random) -> list[Moment]:
    """Before each call that reaches the medium; of many, before some and others."""
    if outside <= _RACES:
        return [Moment(number, outside=True) for number in range(outside)]
    return [pick(way, calls, range(outside)) for way in spread(_RACES, chance)]
