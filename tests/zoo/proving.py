"""The whole matrix: each broken backend fails what its row of the page names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.conformance.parts import with_needs
from tests.proving.verdict import Verdict
from tests.zoo.matrix import failed_cases, others_on_page
from tests.zoo.registry import ZOO

from streamfactory.conformance.runner import all_cases

if TYPE_CHECKING:
    from pathlib import Path

    from tests.zoo.registry import BrokenBackend

_TRIES: Final = 3
"""Of other cases that passed although the page names them: some need a race."""


def prove(rounds: int, seed: int, place: Path) -> Verdict:
    """Run the whole kit on each broken backend, once; a finding is a wrong row."""
    verdict = Verdict(inputs=len(ZOO))
    for broken in ZOO.values():
        failed = set(failed_cases(broken, seed=seed))
        named = {broken.caught_by, *others_on_page(broken)}
        passed = _still_passed(broken, named - failed)
        if passed or failed - named:
            verdict.findings += 1
            more = sorted(failed - named)
            verdict.notes.append(f"{broken.name}: passes {passed}, fails {more} too")
    return verdict


def _still_passed(broken: BrokenBackend, names: set[str]) -> list[str]:
    """Which of these cases pass in more runs, too; the one that catches is not tried
    again: it catches by no luck."""
    left = names - {broken.caught_by}
    for seed in range(1, _TRIES + 1):
        if not left:
            break
        cases = with_needs(case for case in all_cases() if case.name in left)
        left -= set(failed_cases(broken, cases, seed))
    return sorted(left | (names & {broken.caught_by}))
