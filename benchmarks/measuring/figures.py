"""What every benchmark reports: the median and the spread of some rounds."""

from __future__ import annotations

import json
import random
import statistics
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence


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

    def __str__(self) -> str:
        beside = "".join(f", {what} {value:.2f}" for what, value in self.beside.items())
        return (
            f"{self.name:<58} {self.value:>9.2f} {self.unit:<8} goal {self.goal:<8}"
            f" rounds {self.rounds}, spread {self.spread:.2f}{beside}"
        )


def figure(
    name: str,
    values: Sequence[float],
    unit: str,
    goal: str,
    beside: Mapping[str, float] | None = None,
) -> Figure:
    """Median and spread of some rounds."""
    median, spread = statistics.median(values), max(values) - min(values)
    return Figure(name, median, unit, goal, len(values), spread, dict(beside or {}))


def report(figures: Iterable[Figure], *, as_json: bool) -> None:
    """Print figures, each when it is there; as JSON all at once."""
    if as_json:
        print(json.dumps([asdict(one) for one in figures]))
        return
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
    """Seconds of each side in each round; one round more, to warm up, is left out."""
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


def ratios(over: Sequence[float], under: Sequence[float]) -> list[float]:
    """Round by round."""
    return [one / other for one, other in zip(over, under, strict=True)]
