"""A cost by size: what it was, and what class its growth has."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from benchmarks.measuring.figures import figure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from benchmarks.measuring.figures import Figure

CONSTANT, LOGARITHMIC, LINEAR = "constant", "logarithmic", "linear"
CLASSES: Final[Mapping[str, float]] = {CONSTANT: 0.15, LOGARITHMIC: 0.3, LINEAR: 1.15}
"""The greatest exponent of each class between the last two sizes.

0.15 is a factor of 1.4 for ten times the size. A constant part makes an exponent
smaller, so that a class holds at the largest sizes or not at all.
"""
LEAST: Final = 7
"""Measurements of one value, whose least counts: the machine may do other work."""


@dataclass(frozen=True)
class Curve:
    """The values of one cost at some sizes."""

    name: str
    """What costs."""
    over: str
    """What the sizes count."""
    unit: str
    values: Mapping[int, float]
    growth: str
    """The class that it should have: a key of `CLASSES`."""
    reason: str
    """Why it has this class."""

    @property
    def exponent(self) -> float:
        """Of the growth between the last two sizes; 0 of a cost that shrinks."""
        (size, value), (larger, last) = list(self.values.items())[-2:]
        if not value or last <= value:
            return 0.0
        return math.log(last / value) / math.log(larger / size)

    def figure(self) -> Figure:
        """The exponent, with the values beside it."""
        beside = {f"{self.unit} at {size:,}": v for size, v in self.values.items()}
        goal = f"<= {CLASSES[self.growth]}"
        name = f"{self.name}, by {self.over}: {self.growth}"
        return figure(name, [self.exponent], "exponent", goal, beside)


def least(task: Callable[[], object], times: int = LEAST) -> float:
    """Milliseconds of the processor that a task takes at the least."""
    found = []
    for _ in range(times):
        begun = time.process_time()
        task()
        found.append(time.process_time() - begun)
    return 1000 * min(found)


def powers(first: int, last: int, factor: int = 10) -> Sequence[int]:
    """Sizes from the first to the last."""
    sizes = [first]
    while sizes[-1] * factor <= last:
        sizes.append(sizes[-1] * factor)
    return sizes
