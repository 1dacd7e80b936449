"""The kit proves itself: each broken backend is caught by the case meant for it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
from tests.zoo import readers, writers
from tests.zoo.cage import ZOO, Animal

from streamfactory.backends.memory.harness import MemoryHarness
from streamfactory.conformance.runner import Outcome, all_cases, run
from streamfactory.spi import Backend, hookimpl
from streamfactory.wiring.plugins import PluginManager

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_OTHERS = 3

assert readers.__name__ != writers.__name__  # both are imported: they fill the zoo


class _Plugin:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    @hookimpl
    def streamfactory_backend(self) -> Backend:
        return self._backend


def failed_cases(backend: Backend, **given: Any) -> list[str]:
    plugins = PluginManager()
    plugins.register(_Plugin(backend))
    results = run(backend, MemoryHarness, plugins, quick=True, **given)
    return [r.case.name for r in results if r.outcome is Outcome.FAILED]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logger = logging.getLogger("streamfactory")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(level)


@pytest.mark.parametrize("animal", ZOO.values(), ids=ZOO)
def test_is_caught_by_its_case_and_few_others(animal: Animal) -> None:
    failed = failed_cases(animal.backend)
    assert animal.caught_by in failed
    others = [name for name in failed if name != animal.caught_by]
    assert len(others) <= MOST_OTHERS


def test_the_zoo_is_large_enough() -> None:
    assert len(ZOO) >= 40


def test_every_animal_is_meant_for_a_case_that_there_is() -> None:
    names = {case.name for case in all_cases()}
    assert {animal.caught_by for animal in ZOO.values()} <= names


def test_what_a_case_builds_on_runs_before_it() -> None:
    order = [case.name for case in all_cases()]
    for case in all_cases():
        for needed in case.needs:
            assert order.index(needed) < order.index(case.name)
