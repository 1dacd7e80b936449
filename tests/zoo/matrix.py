"""The table of the zoo: ``python -m tests.zoo.matrix`` writes it.

Each row is a broken backend, the case that has to fail, and other cases that fail too.
"""

from __future__ import annotations

import logging
import random
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.conformance.parts import with_needs
from tests.zoo import (
    adversaries,
    capabilities,
    committers,
    outages,
    processes,
    readers,
    servers,
    writers,
)
from tests.zoo.planted import section
from tests.zoo.planted_nats import NATS
from tests.zoo.planted_redis import REDIS
from tests.zoo.registry import ZOO, BrokenBackend

from streamfactory.conformance import Subject
from streamfactory.conformance.case import CASES, Case
from streamfactory.conformance.patience import Waits
from streamfactory.conformance.runner import Outcome, all_cases, run
from streamfactory.spi import Backend, hookimpl
from streamfactory.wiring.plugins.manager import PluginManager

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streamfactory.conformance.bench import Bench

__all__ = [
    "DEFECTS",
    "PAGE",
    "adversaries",
    "capabilities",
    "committers",
    "failed_cases",
    "outages",
    "plugins_for",
    "processes",
    "readers",
    "servers",
    "table",
    "writers",
]

DEFECTS: Final = {"redis": REDIS, "nats": NATS}
"""Planted defects, by type."""
PAGE = Path(__file__).parents[2] / "docs" / "zoo.md"

_HEAD = """# The zoo

The conformance kit is tested on broken backends. Each has one defect and is otherwise
correct. The case meant for the defect has to fail, and at most three others. A case
that needs a failed one is not run: reports name causes rather than consequences.
The suite runs the case meant for each backend and a sample of the others;
`make prove PATHS=zoo` runs all and checks every row.

| broken backend | what is wrong | caught by | and by |
|---|---|---|---|
"""


class _Plugin:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    @hookimpl
    def streamfactory_backend(self) -> Backend:
        return self._backend


def plugins_for(backend: Backend) -> PluginManager:
    """A manager in which the backend is the one of its name."""
    plugins = PluginManager()
    plugins.register(_Plugin(backend))
    return plugins


def failed_cases(
    broken: BrokenBackend, cases: Iterable[Case[Bench]] | None = None, seed: int = 0
) -> list[str]:
    """The names of those cases, by default of the whole kit, that a backend fails.

    Slow cases are left out, unless only a slow case can catch the backend.
    """
    cases = all_cases() if cases is None else cases
    quick = not CASES[broken.caught_by].slow
    plugins = plugins_for(broken.backend)
    subject = Subject(broken.backend, broken.harness, plugins, waits=WAITS)
    results = run(subject, cases=cases, quick=quick, seed=seed)
    return [r.case.name for r in results if r.outcome is Outcome.FAILED]


WAITS: Final = Waits(progress=1.0, attempts=2, settle=0.3, looks=8)
"""The backends of the zoo run in this process and answer at once, or never."""


def sampled_cases(broken: BrokenBackend, others: int) -> list[Case[Bench]]:
    """The case that catches a backend and a sample of others, in their order.

    The samples of all backends together have each case of the pool several times. With
    each case come those that it needs: a case whose needs fail is not run.
    """
    cases = all_cases()
    pool = [one.name for one in cases if not one.slow and one.name not in WAITING]
    random.Random(0).shuffle(pool)
    first = others * [*ZOO].index(broken.name)
    sample = (pool[(first + number) % len(pool)] for number in range(others))
    chosen = {broken.caught_by, *sample}
    return with_needs(one for one in cases if one.name in chosen)


WAITING: Final = {
    "deadlines_are_honoured",
    "closing_wakes_a_blocked_fetch",
    "an_empty_result_is_a_batch_with_its_state",
    "an_empty_fetch_returns_within_its_time_slice",
}
"""Cases that wait for most of the kit's time: in no sample."""


def row(broken: BrokenBackend, others: Iterable[str]) -> str:
    """A line of the page."""
    also = ", ".join(f"`{name}`" for name in others) or "none"
    return f"| {broken.name} | {broken.doc} | `{broken.caught_by}` | {also} |"


def others_on_page(broken: BrokenBackend) -> list[str]:
    """The other cases that the page names for a backend.

    Raises:
        ValueError: The page has no row for it, or another one.
    """
    start = row(broken, ()).removesuffix("none |")
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith(start):
            return re.findall("`([^`]+)`", line.removeprefix(start))
    msg = f"docs/zoo.md has no row {start!r}: run python -m tests.zoo.matrix"
    raise ValueError(msg)


def table() -> str:
    """Run the kit on every broken backend."""
    rows = []
    for broken in ZOO.values():
        others = [n for n in failed_cases(broken) if n != broken.caught_by]
        rows.append(row(broken, others))
    return _HEAD + "\n".join(rows) + "\n" + section(DEFECTS)


if __name__ == "__main__":
    logging.getLogger("streamfactory").setLevel(logging.CRITICAL)
    PAGE.write_text(table())
