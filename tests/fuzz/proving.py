"""``make prove PATHS=fuzz``: damaged inputs for every entry point.

A round is 3,000 inputs, so that ``N=100`` feeds 300,000. Inputs that cause something
are kept in ``.fuzz/``, each with the command that repeats it.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.fuzz import corpus
from tests.fuzz.entries.every import ENTRIES
from tests.fuzz.running import Item, Report, Run
from tests.proving.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.fuzz.entries.base import Entry

ROUND: Final = 3000
"""Inputs of one round."""
_CHILDREN: Final = 2
"""At a time."""


def plan(inputs: int, entries: Iterable[type[Entry]], total: int) -> list[Item]:
    """The inputs of some entry points.

    Args:
        inputs: Of all entry points together, at least.
        entries: Those that are wanted.
        total: Shares of all of them.
    """
    found = []
    for entry in entries:
        wanted = -(-inputs * entry.SHARE // total)
        found.append(Item(entry.NAME, -(-wanted // entry.MESSAGES)))
    return found


def shares() -> int:
    """Shares of all entry points."""
    return sum(entry.SHARE for entry in ENTRIES.values())


def campaign(inputs: int, seed: int, folder: Path, keep: Path) -> Report:
    """Feed so many inputs to all entry points."""
    seeds = folder / "corpus"
    corpus.build(seeds)
    todo = deque(plan(inputs, ENTRIES.values(), shares()))
    total = Report()

    def work(number: int) -> list[Report]:
        found = []
        while todo:
            try:
                item = todo.popleft()
            except IndexError:
                break
            place = folder / f"{number}-{item.entry}"
            place.mkdir()
            found.append(Run([item], seed, place, seeds, keep).run())
        return found

    with ThreadPoolExecutor(_CHILDREN) as pool:
        for reports in pool.map(work, range(_CHILDREN)):
            for report in reports:
                total.add(report)
    return total


def prove(rounds: int, seed: int, root: Path) -> Verdict:
    """Feed so many rounds of inputs."""
    report = campaign(rounds * ROUND, seed, root, Path.cwd() / ".fuzz")
    notes = [
        f"fuzz {entry}: {count} inputs, {report.share(entry):.0%} accepted, "
        f"{report.seconds[entry]:.0f} s, "
        + ", ".join(f"{n} {what}" for what, n in report.outcomes[entry].most_common(5))
        for entry, count in sorted(report.inputs.items())
    ]
    found = sum(kept.count for kept in report.kept.values())
    notes += str(report).splitlines()
    unbalanced = report.unbalanced()
    notes += [f"fuzz generator {text}, not 20 to 80 %" for text in unbalanced]
    return Verdict(
        inputs=report.inputs.total(),
        findings=found + report.left_out.total() + len(unbalanced),
        notes=notes,
    )
