"""The kit proves itself: each broken backend is caught by the case meant for it."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.zoo.matrix import PAGE, failed_cases, plugins_for
from tests.zoo.registry import ZOO, BrokenBackend
from tests.zoo.servers import TlsHarness

from streamfactory.backends.memory import streamfactory_backend
from streamfactory.backends.memory.harness import MemoryHarness
from streamfactory.conformance import Subject
from streamfactory.conformance.runner import Outcome, all_cases, run, run_case
from streamfactory.conformance.specimens import durable, envelopes, forgetful

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfactory.spi import Backend

MOST_OTHERS = 3
WAITING = {
    "deadlines_are_honoured",
    "closing_wakes_a_blocked_fetch",
    "an_empty_result_is_a_batch_with_its_state",
    "an_empty_fetch_returns_within_its_time_slice",
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
@pytest.mark.parametrize("broken", ZOO.values(), ids=ZOO)
def test_a_broken_backend_fails_its_case_and_few_other_cases(
    broken: BrokenBackend,
) -> None:
    failed = failed_cases(broken, WAITING - {broken.caught_by})
    assert broken.caught_by in failed
    others = [name for name in failed if name != broken.caught_by]
    assert len(others) <= MOST_OTHERS


@pytest.mark.parametrize(
    ("backend", "harness", "case"),
    [
        (
            forgetful.streamfactory_backend(),
            TlsHarness,
            "a_refused_certificate_is_an_error_in_time",
        ),
        (
            envelopes.streamfactory_backend(),
            envelopes.EnvelopesHarness,
            "carried_columns_come_back",
        ),
        (
            durable.streamfactory_backend(),
            durable.DurableHarness,
            "a_commit_that_loses_its_server_writes_once",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_correct_backend_passes_the_case(
    backend: Backend, harness: type[Any], case: str
) -> None:
    [found] = [one for one in all_cases() if one.name == case]
    result = run_case(found, Subject(backend, harness, plugins_for(backend)))
    assert (result.outcome, result.reason) == (Outcome.PASSED, "")


def test_the_zoo_is_large_enough() -> None:
    assert len(ZOO) >= 40


def test_every_broken_backend_names_an_existing_case() -> None:
    names = {case.name for case in all_cases()}
    assert {broken.caught_by for broken in ZOO.values()} <= names


def test_the_page_has_a_row_for_each_broken_backend() -> None:
    page = PAGE.read_text()
    rows = {
        f"| {broken.name} | {broken.doc} | `{broken.caught_by}` |"
        for broken in ZOO.values()
    }
    assert {row for row in rows if row not in page} == set()
    assert page.count("\n| ") == len(ZOO) + 1


def test_needed_cases_run_first() -> None:
    order = [case.name for case in all_cases()]
    for case in all_cases():
        for needed in case.needs:
            assert order.index(needed) < order.index(case.name)


def test_a_type_that_only_writes_passes_the_writing_half() -> None:
    backend = replace(streamfactory_backend(), consumer_factory=None)
    plugins = plugins_for(backend)
    results = list(run(Subject(backend, MemoryHarness, plugins), quick=True))
    by_half = {
        writing: {r.outcome for r in results if r.case.writing is writing}
        for writing in (True, False)
    }
    assert Outcome.FAILED not in by_half[True]
    assert Outcome.PASSED in by_half[True]
    assert by_half[False] == {Outcome.SKIPPED}
