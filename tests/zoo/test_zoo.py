"""The kit proves itself: each broken backend is caught by the case meant for it."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.zoo.cage import ZOO, Animal
from tests.zoo.matrix import PAGE, failed_cases, plugins_for

from streamfactory.backends.memory import streamfactory_backend
from streamfactory.backends.memory.harness import MemoryHarness
from streamfactory.conformance.runner import Outcome, all_cases, run

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_OTHERS = 3
WAITING = {
    "deadlines_are_honoured",
    "closing_wakes_a_blocked_fetch",
    "an_empty_answer_is_a_batch_that_says_why",
    "an_empty_fetch_comes_back_in_its_slice",
}
"""Cases that wait for half of the kit's time; tried on those whom they are to catch."""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logger = logging.getLogger("streamfactory")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(level)


@pytest.mark.long("the kit runs on each of 60 broken backends")
@pytest.mark.parametrize("animal", ZOO.values(), ids=ZOO)
def test_is_caught_by_its_case_and_few_others(animal: Animal) -> None:
    failed = failed_cases(animal, WAITING - {animal.caught_by})
    assert animal.caught_by in failed
    others = [name for name in failed if name != animal.caught_by]
    assert len(others) <= MOST_OTHERS


def test_the_zoo_is_large_enough() -> None:
    assert len(ZOO) >= 40


def test_every_animal_is_meant_for_a_case_that_there_is() -> None:
    names = {case.name for case in all_cases()}
    assert {animal.caught_by for animal in ZOO.values()} <= names


def test_the_page_has_a_row_for_each_animal() -> None:
    page = PAGE.read_text()
    rows = {
        f"| {animal.name} | {animal.doc} | `{animal.caught_by}` |"
        for animal in ZOO.values()
    }
    assert {row for row in rows if row not in page} == set()
    assert page.count("\n| ") == len(ZOO) + 1


def test_what_a_case_builds_on_runs_before_it() -> None:
    order = [case.name for case in all_cases()]
    for case in all_cases():
        for needed in case.needs:
            assert order.index(needed) < order.index(case.name)


def test_a_type_that_only_writes_is_proved_as_far_as_it_goes() -> None:
    backend = replace(streamfactory_backend(), consumer_factory=None)
    plugins = plugins_for(backend)
    results = list(run(backend, MemoryHarness, plugins, quick=True))
    by_half = {
        writing: {r.outcome for r in results if r.case.writing is writing}
        for writing in (True, False)
    }
    assert Outcome.FAILED not in by_half[True]
    assert Outcome.PASSED in by_half[True]
    assert by_half[False] == {Outcome.SKIPPED}
