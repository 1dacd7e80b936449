"""The kit passes for what ``push`` claims: order, true ends, and no more."""

from __future__ import annotations

from streamfactory.backends.push.harness import PushHarness
from streamfactory.conformance.runner import Outcome, all_cases, run
from streamfactory.conformance.subject import find_subject
from streamfactory.conformance.suite import ConformanceSuite


class TestPush(ConformanceSuite):
    harness = PushHarness


def test_writing_is_proved_as_far_as_it_is_claimed() -> None:
    subject = find_subject("push")
    writing = [case for case in all_cases() if case.writing]
    results = list(run(subject, cases=writing))
    passed = {r.case.name for r in results if r.outcome is Outcome.PASSED}
    assert {
        "an_empty_epoch_commits",
        "abort_tolerates_missing_messages_and_repetition",
        "rows_go_to_the_partition_they_name",
        "no_restart_loses_an_epoch",
    } <= passed
    assert not any(r.outcome is Outcome.FAILED for r in results)
