"""The table of the zoo: ``python -m tests.zoo.matrix`` writes it.

Each row is a broken backend, the case that has to fail, and other cases that fail too.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from tests.zoo import capabilities, committers, processes, readers, servers, writers
from tests.zoo.registry import ZOO, BrokenBackend

from streamfactory.conformance import Subject
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
    "servers",
    "table",
    "writers",
]

PAGE = Path(__file__).parents[2] / "docs" / "zoo.md"

_HEAD = """# The zoo

The conformance kit is tested on broken backends. Each has one defect and is otherwise
correct. The case meant for the defect has to fail, and at most three others. A case
that needs a failed one is not run: reports name causes rather than consequences.
The suite checks every row.

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


def failed_cases(broken: BrokenBackend, without: Container[str] = ()) -> list[str]:
    """The cases that a backend fails, without those named.

    Slow ones are left out, but for a backend that only such a case can catch.
    """
    backend = broken.backend
    cases = [case for case in all_cases() if case.name not in without]
    quick = not CASES[broken.caught_by].slow
    plugins = plugins_for(backend)
    results = run(Subject(backend, broken.harness, plugins), cases=cases, quick=quick)
    return [r.case.name for r in results if r.outcome is Outcome.FAILED]


def table() -> str:
    """Run the kit on every broken backend."""
    rows = []
    for broken in ZOO.values():
        others = [n for n in failed_cases(broken) if n != broken.caught_by]
        also = ", ".join(f"`{name}`" for name in others) or "none"
        rows.append(f"| {broken.name} | {broken.doc} | `{broken.caught_by}` | {also} |")
    return _HEAD + "\n".join(rows) + "\n"


if __name__ == "__main__":
    logging.getLogger("streamfactory").setLevel(logging.CRITICAL)
    PAGE.write_text(table())
