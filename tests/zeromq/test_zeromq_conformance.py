"""The kit passes for what is claimed: order, true ends, and no lost epoch."""

from __future__ import annotations

from tests.conformance.parts import chapters, check_live_writing, failures, run_part

from streamfactory.backends.zeromq.harness import ZeromqHarness, ZeromqPublisherHarness
from streamfactory.conformance.runner import Outcome, all_cases, run
from streamfactory.conformance.subject import find_subject
from streamfactory.conformance.suite import ConformanceSuite


class TestZeromq(ConformanceSuite):
    """Reading by dealer-router: R12, what is not acknowledged is sent again."""

    harness = ZeromqHarness


def test_subscribers_pass_the_reading_half() -> None:
    """Another pattern is seen where messages are received: reading by pub-sub."""
    parts = ("reading", "lifecycle", "connections")
    assert failures(run_part(ZeromqPublisherHarness, chapters(*parts))) == {}


def test_the_cases_of_acknowledgement_run_on_zeromq() -> None:
    subject = find_subject("zeromq")
    cases = [case for case in all_cases() if case.rule == "R12"]
    results = run(subject, cases=cases)
    outcomes = {r.case.name: (r.outcome, r.reason) for r in results}
    assert len(outcomes) == 7
    assert set(outcomes.values()) == {(Outcome.PASSED, "")}


def test_writing_is_proved_as_far_as_it_is_claimed() -> None:
    check_live_writing(find_subject("zeromq"))
