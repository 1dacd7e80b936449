"""Kill rounds over a harness: rows out equal rows in, each once.

Each round kills a writer, and restarts it as a user would: it asks what was committed
last, and writes the epoch where it is not there.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from streamfactory.conformance.bench import is_claimed
from streamfactory.conformance.cases.writing import seen
from streamfactory.conformance.children import Nursery, Task
from streamfactory.conformance.harness import WritesRows, lacking
from streamfactory.conformance.moments import pick, spread
from streamfactory.conformance.roles import Course, Epoch, Place, write_epoch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from streamfactory.conformance.bench import Bench
    from streamfactory.conformance.subject import Subject

ROWS: Final = 20
"""Rows of an epoch."""
_WRITER: Final = "prove/sink"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a proof comes to."""

    kills: int = 0
    lost: int = 0
    twice: int = 0
    problem: str = ""
    """Why it ended early."""

    @property
    def good(self) -> bool:
        """Whether nothing was lost, or there twice, and all rounds were made."""
        return not (self.lost or self.twice or self.problem)

    def __str__(self) -> str:
        return f"lost={self.lost} twice={self.twice}"


def unprovable(subject: Subject, folder: Path) -> str | None:
    """Why the writers of a subject cannot be proved; None where they can."""
    subject.prepare()
    with closing(subject.open(folder)) as bench:
        if subject.backend.producer_factory is None:
            return "the type cannot be written"
        if missing := lacking(bench.harness, WritesRows):
            return f"the harness has no {' and no '.join(missing)}"
        bench.create()
        claims = bench.sink().claims
        needed = ("durable", "shared", "idempotent", "epoch_visibility")
        missing = [name for name in needed if not is_claimed(claims, name)]
        return f"not claimed: {missing[0]}" if missing else None


def prove_writing(
    subject: Subject, folder: Path, rounds: int, seed: int
) -> Iterator[Verdict]:
    """Kill writers, and restart them; a verdict after each round, of all until then.

    Half of the kills happen inside commit, before calls that reach the medium if
    possible; the others at any time within the duration of the first writer, which is
    not killed.
    """
    chance = random.Random(seed)  # noqa: S311 - repeats itself
    subject.prepare()
    with closing(subject.open(folder)) as bench:
        bench.create(partitions=2)
        place = Place.of(bench.configured("write"))
        nursery = bench.closing(Nursery())
        calls = outside = kills = 0
        took = 0.0
        ways = spread(max(2, rounds), chance)
        for number in range(rounds):
            epoch = _epoch(bench, number)
            course, kill_after = Course(), None
            if number % 2 and calls:
                course = Course(pick(ways[number], calls, range(outside)))
            elif number:
                kill_after = chance.uniform(0, took)
            task = (place, _WRITER, epoch, course)
            begun = time.monotonic()
            [ended] = nursery.run(Task(write_epoch, task, kill_after))
            if not number:
                took = time.monotonic() - begun
            kills += ended.killed
            [again] = nursery.run(Task(write_epoch, (place, _WRITER, epoch, Course())))
            problem = ended.problem or again.problem
            for one in (ended, again):
                if one.answer and one.answer[1]:  # it was the one that committed
                    _, calls, outside = one.answer
            yield _compared(bench, number + 1, kills, problem)
            if problem:
                return


def _epoch(bench: Bench, number: int) -> Epoch:
    rows = range(ROWS * number, ROWS * (number + 1))
    return Epoch.of(bench, number, rows[: ROWS // 2], rows[ROWS // 2 :])


def _compared(bench: Bench, epochs: int, kills: int, problem: str) -> Verdict:
    wanted, found = Counter(range(ROWS * epochs)), Counter(seen(bench))
    lost, twice = (wanted - found).total(), (found - wanted).total()
    return Verdict(kills, lost, twice, problem)
