"""The kit proves itself: each broken backend is caught by the case meant for it."""

from __future__ import annotations

import ast
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.zoo import matrix, proving
from tests.zoo.matrix import (
    DEFECTS,
    PAGE,
    WAITING,
    WAITS,
    failed_cases,
    others_on_page,
    plugins_for,
    row,
    sampled_cases,
)
from tests.zoo.planted import section
from tests.zoo.registry import ZOO, BrokenBackend
from tests.zoo.remote import RemoteHarness, remote_backend
from tests.zoo.servers import TlsHarness

from streamfactory.backends.memory import streamfactory_backend
from streamfactory.backends.memory.harness import MemoryHarness
from streamfactory.conformance import Subject
from streamfactory.conformance.runner import Outcome, all_cases, run, run_case
from streamfactory.conformance.specimens import durable, envelopes, forgetful

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from streamfactory.spi import Backend

MOST_OTHERS = 3
"""Other cases that a broken backend fails at most."""
SAMPLE = 3
"""Other cases that the suite runs on each."""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logger = logging.getLogger("streamfactory")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(level)


@pytest.mark.slow("the kit runs on each of 100 broken backends")
@pytest.mark.parametrize("broken", ZOO.values(), ids=ZOO)
def test_a_broken_backend_fails_its_case_and_of_others_those_on_the_page(
    broken: BrokenBackend,
) -> None:
    """Of the others a sample is run; ``make prove PATHS=zoo`` runs all."""
    failed = failed_cases(broken, sampled_cases(broken, SAMPLE))
    assert broken.caught_by in failed
    assert set(failed) <= {broken.caught_by, *others_on_page(broken)}


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


@pytest.mark.parametrize(
    "case",
    sorted({b.caught_by for b in ZOO.values() if b.harness is RemoteHarness}),
)
def test_a_correct_remote_backend_passes_the_case(case: str) -> None:
    """And what it needs of a server, a user or an offset is not skipped."""
    [found] = [one for one in all_cases() if one.name == case]
    backend = remote_backend()
    plugins = plugins_for(backend)
    result = run_case(found, Subject(backend, RemoteHarness, plugins, waits=WAITS))
    assert (result.outcome, result.reason) == (Outcome.PASSED, "")


def test_the_zoo_is_large_enough() -> None:
    assert len(ZOO) >= 40


def test_every_broken_backend_names_an_existing_case() -> None:
    names = {case.name for case in all_cases()}
    assert {broken.caught_by for broken in ZOO.values()} <= names


def test_the_page_has_a_row_for_each_broken_backend() -> None:
    others = {broken.name: others_on_page(broken) for broken in ZOO.values()}
    assert [name for name in others if len(others[name]) > MOST_OTHERS] == []
    assert PAGE.read_text().count("\n| ") == len(ZOO) + 1


def test_a_sample_has_the_case_that_catches_and_all_that_it_needs() -> None:
    for broken in ZOO.values():
        sample = sampled_cases(broken, SAMPLE)
        names = [case.name for case in sample]
        assert broken.caught_by in names
        assert len(names) > SAMPLE
        for case in sample:
            assert set(case.needs) <= set(names[: names.index(case.name)])


def test_samples_of_all_backends_have_most_cases_of_the_kit() -> None:
    sampled = {c.name for broken in ZOO.values() for c in sampled_cases(broken, SAMPLE)}
    pool = {case.name for case in all_cases() if not case.slow} - WAITING
    assert pool - sampled == set()


@pytest.mark.slow("runs the whole kit")
def test_a_wrong_row_of_the_page_is_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, page = ZOO["AbortsOnce"], tmp_path / "zoo.md"
    wrong = row(broken, ["an_empty_epoch_commits"])
    page.write_text(PAGE.read_text().replace(row(broken, ()), wrong))
    monkeypatch.setattr(matrix, "PAGE", page)
    monkeypatch.setattr(proving, "ZOO", {broken.name: broken})
    verdict = proving.prove(1, 0, tmp_path)
    assert (verdict.inputs, verdict.findings, verdict.good) == (1, 1, False)


def test_planted_defects_change_their_module_and_are_on_the_page() -> None:
    for defects in DEFECTS.values():
        assert len({defect.name for defect in defects}) == 15
        for defect in defects:
            changed = defect.mutation().apply(defect.path.read_text())
            ast.parse(changed)
            assert defect.after in changed
    assert PAGE.read_text().endswith(section(DEFECTS))


def test_a_defect_whose_text_is_missing_is_an_error() -> None:
    gone = replace(DEFECTS["redis"][0], before="there is no such text")
    with pytest.raises(ValueError, match="has 0 times 'there is no such text'"):
        gone.mutation()


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
