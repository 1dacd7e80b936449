"""The table of the zoo: ``python -m tests.zoo.matrix`` writes it anew.

Each row is a broken backend, the case that is meant to catch it, and the others that
do as well.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from tests.zoo import capabilities, committers, processes, readers, writers
from tests.zoo.cage import ZOO, Animal

from streamfactory.conformance.case import CASES
from streamfactory.conformance.runner import Outcome, all_cases, run
from streamfactory.spi import Backend, hookimpl
from streamfactory.wiring.plugins.manager import PluginManager

if TYPE_CHECKING:
    from collections.abc import Container

__all__ = [
    "PAGE",
    "capabilities",
    "committers",
    "failed_cases",
    "plugins_for",
    "processes",
    "readers",
    "table",
    "writers",
]

PAGE = Path(__file__).parents[2] / "docs" / "zoo.md"

_HEAD = """# The zoo

The conformance kit proves itself on broken backends, each wrong in one way and else
correct. Each has to be caught by the case meant for it, and by at most three others: a
case that builds on one that failed is not tried, so that a report names causes rather
than consequences. The suite checks every row.

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


def failed_cases(animal: Animal, without: Container[str] = ()) -> list[str]:
    """The cases that a backend fails, without those named.

    Slow ones are left out, but for a backend that only such a case can catch.
    """
    backend = animal.backend
    cases = [case for case in all_cases() if case.name not in without]
    quick = not CASES[animal.caught_by].slow
    plugins = plugins_for(backend)
    results = run(backend, animal.harness, plugins, cases=cases, quick=quick)
    return [r.case.name for r in results if r.outcome is Outcome.FAILED]


def table() -> str:
    """Run the kit on every animal."""
    rows = []
    for animal in ZOO.values():
        others = [n for n in failed_cases(animal) if n != animal.caught_by]
        also = ", ".join(f"`{name}`" for name in others) or "none"
        rows.append(f"| {animal.name} | {animal.doc} | `{animal.caught_by}` | {also} |")
    return _HEAD + "\n".join(rows) + "\n"


if __name__ == "__main__":
    logging.getLogger("streamfactory").setLevel(logging.CRITICAL)
    PAGE.write_text(table())
