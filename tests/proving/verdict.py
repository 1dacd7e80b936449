"""What a proof comes to."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(slots=True)
class Verdict:
    """Rows lost, rows there twice, kills or cuts made, inputs; they add up."""

    lost: int = 0
    twice: int = 0
    kills: int = 0
    inputs: int = 0
    """Damaged inputs that were fed to entry points, broken backends that were fed to
    the kit, or defects that were planted."""
    findings: int = 0
    """Those of them with a result that they may not have."""
    notes: list[str] = field(default_factory=list)
    """What is worth telling."""

    @property
    def good(self) -> bool:
        return not self.lost and not self.twice and not self.findings

    def __str__(self) -> str:
        if self.inputs:
            return f"inputs={self.inputs} findings={self.findings}"
        return f"lost={self.lost} twice={self.twice} kills={self.kills}"

    def __iadd__(self, other: Verdict) -> Verdict:
        self.lost += other.lost
        self.twice += other.twice
        self.kills += other.kills
        self.inputs += other.inputs
        self.findings += other.findings
        self.notes += other.notes
        return self


def compared(
    wanted: Mapping[str, Iterable[int]], found: Mapping[str, Iterable[int]]
) -> Verdict:
    """Rows by place; rows in another order count as lost, and as there twice."""
    verdict = Verdict()
    for place in wanted.keys() | found.keys():
        here, there = list(wanted.get(place, ())), list(found.get(place, ()))
        missing, more = Counter(here) - Counter(there), Counter(there) - Counter(here)
        moved = int(here != there and not missing and not more)
        verdict.lost += missing.total() + moved
        verdict.twice += more.total() + moved
    return verdict
