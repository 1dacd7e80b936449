"""How the kit runs cases: in their time, with a harness that may fail, in order."""

from __future__ import annotations

import re
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from tests.zoo.matrix import plugins_for
from tests.zoo.registry import ZooConsumers

from streamfactory.arrowlog import LogConsumer
from streamfactory.backends.memory import streamfactory_backend
from streamfactory.backends.memory.harness import MemoryHarness
from streamfactory.conformance import CASES, Outcome, Subject
from streamfactory.conformance.limits import Stuck, run_within
from streamfactory.conformance.report import Report, text_lines, to_junit
from streamfactory.conformance.runner import all_cases, decoder_cases, run, run_case
from streamfactory.conformance.subject import subject_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfactory.conformance import Result
    from streamfactory.spi import Backend

all_cases()
MEMORY = streamfactory_backend()
RELEASED = threading.Event()


class HangingConsumer(LogConsumer):
    def fetch_messages(self, start: int, end: Any, limits: Any) -> Any:
        RELEASED.wait(60)
        return super().fetch_messages(start, end, limits)


class HangingFactory(ZooConsumers):
    CONSUMER = HangingConsumer


class CannotTruncate(MemoryHarness):
    def truncate(self, partition: int, messages: int) -> None:
        msg = "the medium is read-only"
        raise RuntimeError(msg)


class CannotBegin(MemoryHarness):
    @classmethod
    def prepare(cls) -> None:
        msg = "no server is installed"
        raise FileNotFoundError(msg)


class MakesOnePartition(MemoryHarness):
    def create(self, partitions: int) -> None:
        super().create(1)


class SeesNothing(MemoryHarness):
    def visible(self) -> dict[int, list[int]]:
        return {key: [] for key in self.partitions()}


def one(harness: Any, name: str, backend: Backend = MEMORY) -> Result:
    return run_case(CASES[name], Subject(backend, harness, plugins_for(backend)))


def outcomes(harness: Any, *names: str, backend: Backend = MEMORY) -> dict[str, Result]:
    cases = [case for case in all_cases() if case.name in names]
    found = run(Subject(backend, harness, plugins_for(backend)), cases=cases)
    return {result.case.name: result for result in found}


def hang() -> None:
    RELEASED.wait(60)


def test_a_call_that_does_not_return_is_named_with_its_limit() -> None:
    try:
        with pytest.raises(Stuck) as caught:
            run_within(0.5, hang)
    finally:
        RELEASED.set()
        RELEASED.clear()
    assert caught.value.what.startswith("the case did not end within 0.5 s: hang (")
    assert "test_runner.py" in caught.value.what
    assert "RELEASED.wait(60)" in caught.value.trace


@pytest.mark.slow("a busy machine needs seconds to come to the call that hangs")
def test_a_case_that_hangs_fails_and_others_go_on() -> None:
    hanging = replace(MEMORY, consumer_factory=HangingFactory)
    names = ("offsets_rise_and_nothing_is_missing", "every_partition_is_answered")
    cases = [CASES[name] for name in names]
    plugins = plugins_for(hanging)
    call = "HangingConsumer.fetch_messages ("
    found: list[Result] = []
    try:
        for limit in (1.0, 10.0):
            hung = run(
                Subject(hanging, MemoryHarness, plugins), cases=cases, time_limit=limit
            )
            found = list(hung)
            if call in found[0].reason:
                break
    finally:
        RELEASED.set()
    assert [r.outcome for r in found] == [Outcome.FAILED, Outcome.PASSED]
    assert call in found[0].reason


@pytest.mark.parametrize(
    ("harness", "what"),
    [
        (CannotTruncate, "CannotTruncate.truncate raised RuntimeError: the medium is "),
        (CannotBegin, "CannotBegin.prepare raised FileNotFoundError: no server is "),
        (MakesOnePartition, "create(2) was followed by partitions() [0]"),
    ],
)
def test_a_harness_that_fails_is_reported_as_the_harness(
    harness: type, what: str
) -> None:
    name = (
        "offsets_rise_and_nothing_is_missing"
        if harness is not CannotTruncate
        else "retention_moves_earliest_alone"
    )
    result = one(harness, name)
    assert result.outcome is Outcome.FAILED
    assert result.by_harness
    assert result.reason.startswith(f"the harness failed, not the backend: {what}")
    report = Report("memory", (result,), 0.1, 0, "again")
    # What usually makes a backend fail the case is no cause here.
    assert not any(line.startswith("  usually") for line in text_lines(report))
    assert 'failures="0" errors="1"' in to_junit(report)


def test_a_failure_of_the_backend_is_none_of_the_harness() -> None:
    class Loses(LogConsumer):
        def fetch_messages(self, start: int, end: Any, limits: Any) -> Any:
            fetched = super().fetch_messages(start, end, limits)
            return replace(fetched, rows=None)

    class Factory(ZooConsumers):
        CONSUMER = Loses

    backend = replace(MEMORY, consumer_factory=Factory)
    result = one(MemoryHarness, "offsets_rise_and_nothing_is_missing", backend)
    assert (result.outcome, result.by_harness) == (Outcome.FAILED, False)


def test_a_failure_hides_only_what_builds_on_it() -> None:
    found = outcomes(
        SeesNothing,
        "the_harness_sees_what_it_writes",
        "nothing_is_visible_before_the_decision",
        "bounds_are_true",
        "random_walks_agree_with_the_model",
    )
    assert found["the_harness_sees_what_it_writes"].by_harness
    hidden = found["nothing_is_visible_before_the_decision"]
    assert hidden.outcome is Outcome.SKIPPED
    assert hidden.reason == (
        "not run: it builds on the_harness_sees_what_it_writes, which has not passed"
    )
    for name in ("bounds_are_true", "random_walks_agree_with_the_model"):
        assert found[name].outcome is Outcome.PASSED


def test_what_a_case_builds_on_is_a_case() -> None:
    names = {case.name for case in all_cases()}
    needed: Sequence[str] = [name for case in all_cases() for name in case.needs]
    assert [name for name in needed if name not in names] == []


class Halting(LogConsumer):
    """Returns at once where there is nothing, and cannot be woken before."""

    def fetch_messages(self, start: int, end: Any, limits: Any) -> Any:
        return super().fetch_messages(start, end, replace(limits, timeout=0.0))


class HaltingFactory(ZooConsumers):
    CONSUMER = Halting


def test_a_case_that_examines_less_is_narrowed_with_its_reason() -> None:
    backend = replace(MEMORY, consumer_factory=HaltingFactory)
    result = one(MemoryHarness, "a_fetch_of_the_authors_ends_by_wake", backend)
    reason = "a fetch without messages returned before it could be woken"
    assert (result.outcome, result.reason) == (Outcome.NARROWED, reason)
    report = Report("memory", (result,), 0.1, 0, "again")
    assert list(text_lines(report))[-4:] == [
        "narrowed:",
        f"  1 case: {reason}",
        "",
        "memory: 1 narrowed in 0.1 s (seed 0)",
    ]
    assert not report.failed


class CannotStop(MemoryHarness):
    reasons: ClassVar = {"stop": "the store is a part of this process"}


def test_the_harness_says_why_an_ability_is_missing() -> None:
    result = one(CannotStop, "an_unreachable_server_is_a_connection_error")
    assert result.outcome is Outcome.SKIPPED
    reason = "no ability: stop, start (the store is a part of this process)"
    assert result.reason == reason


class PublicHelper(MemoryHarness):
    """A harness whose helper could become the name of an ability."""

    def helper(self) -> None: ...


def test_a_public_helper_of_a_harness_is_a_warning_with_its_other_name() -> None:
    with pytest.warns(FutureWarning, match="public method helper: rename it _helper"):
        assert subject_of(PublicHelper).name == "memory"


def test_the_page_for_authors_names_cases_by_their_rule() -> None:
    page = Path(__file__).parents[2] / "docs" / "changes-for-authors.md"
    row = r"^\| (\w+) \| [^|]+ \| `(\w+)` \|"
    named = re.findall(row, page.read_text(encoding="utf-8"), re.MULTILINE)
    rules = {case.name: case.rule for case in all_cases()}
    rules |= {case.name: case.rule for case in decoder_cases()}
    assert len(named) > 10
    assert [(rule, name) for rule, name in named if rules.get(name) != rule] == []
