"""What every benchmark reports: the median and the spread of some rounds.

Beside the figure stand the ceiling, which is what a program that does the least reaches
in the same unit, and the noise: by how much the same side differs from itself.
"""

from __future__ import annotations

import itertools
import json
import operator
import random
import re
import statistics
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

AGAIN: Final = "the same again"
"""The side of `turns` that is its first side once more."""
_GOAL: Final = re.compile(r"(<=|>=|<|>) ([\d.]+)( of ceiling)?")
_TIMES: Final = frozenset({"us", "ms", "s"})
_COMPARED: Final = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass
class Figure:
    """One line of a report."""

    name: str
    value: float
    unit: str
    goal: str
    rounds: int
    spread: float
    beside: Mapping[str, float] = field(default_factory=dict)
    """Other numbers of the same rounds, by what they are."""
    ceiling: float | None = None
    """The same of a program that does only what cannot be left out; None if there is
    none, or if it was not measured."""
    noise: float | None = None
    """Share by which two measurements of one side differ, half of the time."""
    met: bool | None = None
    """Whether the goal is reached; None without a goal."""

    def __str__(self) -> str:
        beside = "".join(f", {what} {value:.2f}" for what, value in self.beside.items())
        of_ceiling = "" if not self.ceiling else f"{self.value / self.ceiling:.2f}"
        noise = "" if self.noise is None else f"{100 * self.noise:.0f} %"
        met = {True: "met", False: "not met", None: ""}[self.met]
        return (
            f"{self.name:<58} {self.value:>9.2f} {self.unit:<9} {of_ceiling:>10}"
            f" {self.goal:<18} {self.spread:>8.2f} {noise:>6}  {met:<8}"
            f" {self.rounds} rounds{beside}"
        )


HEADING: Final = (
    f"{'path':<58} {'ratio to peer, or value':<19} {'of ceiling':>10} {'goal':<18}"
    f" {'spread':>8} {'noise':>6}  goal met"
)
"""Over the lines of figures."""


def figure(
    name: str,
    values: Sequence[float],
    unit: str,
    goal: str,
    beside: Mapping[str, float] | None = None,
    *,
    ceiling: Sequence[float] = (),
    again: Sequence[float] = (),
) -> Figure:
    """Median and spread of some rounds.

    Args:
        name: The path that is measured.
        values: Of each round.
        unit: Of the values; ``x`` and a name for a ratio to it.
        goal: A comparison such as ``>= 0.9``, or ``>= 0.9 of ceiling`` for the value
            divided by the ceiling; any other text is no goal.
        beside: Other numbers of the same rounds.
        ceiling: The same of a program that does the least, if there is one.
        again: Ratios of one side to itself. By default those of each round to the next.
    """
    median, spread = statistics.median(values), max(values) - min(values)
    found = Figure(name, median, unit, goal, len(values), spread, dict(beside or {}))
    found.ceiling = statistics.median(ceiling) if ceiling else None
    same = again or [one / two for one, two in itertools.pairwise(values) if two]
    if same:
        found.noise = statistics.median(abs(one - 1) for one in same)
    found.met = is_met(goal, median, found.ceiling)
    return found


def is_met(goal: str, value: float, ceiling: float | None = None) -> bool | None:
    """Whether a value reaches a goal.

    Args:
        goal: See `figure`.
        value: The median.
        ceiling: In the unit of the value, if it was measured.

    Returns:
        None if the goal is no comparison with a number, or is one with a ceiling that
        was not measured.
    """
    found = _GOAL.fullmatch(goal)
    if found is None:
        return None
    if found[3]:
        if not ceiling:
            return None
        value /= ceiling
    return bool(_COMPARED[found[1]](value, float(found[2])))


def worse(now: Figure, before: Figure) -> float | None:
    """By how much a figure is worse than before, as a share of the value before.

    Returns:
        None if it is not, if the difference is within the noise of either
        measurement (0.05 at least), or if neither goal nor unit tell which
        direction is better.
    """
    goal = _GOAL.fullmatch(now.goal)
    less_is_better = now.unit in _TIMES if goal is None else goal[1].startswith("<")
    if (goal is None and not less_is_better) or before.value <= 0:
        return None
    change = now.value / before.value - 1
    by = change if less_is_better else -change
    noise = max(now.noise or 0.0, before.noise or 0.0, 0.05)
    return by if by > noise else None


def report(figures: Iterable[Figure], *, as_json: bool) -> None:
    """Print figures, each when it is there; as JSON all at once."""
    if as_json:
        print(json.dumps([asdict(one) for one in figures]))
        return
    print(HEADING)
    for one in figures:
        print(one, flush=True)


def seconds(task: Callable[[], object]) -> float:
    """That a task takes."""
    begun = time.perf_counter()
    task()
    return time.perf_counter() - begun


def turns(
    rounds: int,
    sides: Mapping[str, Callable[[], object]],
    after: Callable[[], object] = lambda: None,
) -> dict[str, list[float]]:
    """Seconds of each side in each round; one round more, to warm up, is left out.

    The first side takes one more turn in each round, as `AGAIN`, which shows the noise.
    """
    sides = {**sides, AGAIN: next(iter(sides.values()))}
    took: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        for name, side in shuffled(sides):
            one = seconds(side)
            if number:
                took[name].append(one)
            after()
    return took


def shuffled(sides: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """In a new order."""
    return random.sample(list(sides.items()), len(sides))


def itself(took: Mapping[str, Sequence[float]]) -> list[float]:
    """The first side of `turns` over itself, round by round."""
    return ratios(next(iter(took.values())), took[AGAIN])


def ratios(over: Sequence[float], under: Sequence[float]) -> list[float]:
    """Round by round."""
    return [one / other for one, other in zip(over, under, strict=True)]
