"""The kit passes for what is claimed, which is nothing but order and true ends."""

from __future__ import annotations

from streamfactory.backends.socket.harness import SocketHarness
from streamfactory.conformance.runner import Outcome, all_cases, run
from streamfactory.conformance.subject import find_subject
from streamfactory.conformance.suite import ConformanceSuite


class TestSocket(ConformanceSuite):
    harness = SocketHarness


def test_writing_is_proved_as_far_as_it_is_claimed() -> None:
    subject = find_subject("socket")
    writing = [case for case in all_cases() if case.writing]
    results = list(run(subject, cases=writing))
    passed = {r.case.name for r in results if r.outcome is Outcome.PASSED}
    assert passed == {
        "an_empty_epoch_commits",
        "abort_tolerates_missing_messages_and_repetition",
        "rows_go_to_the_partition_they_name",
        "no_restart_loses_an_epoch",
        "writes_of_any_size_are_whole",
    }
    others = [r for r in results if r.case.name not in passed]
    assert {r.outcome for r in others} == {Outcome.SKIPPED}
    claims = {r.reason.partition("=")[0] for r in others}
    assert claims == {
        "not claimed: durable",
        "not claimed: epoch_visibility",
        "not claimed: idempotent",
        "CARRIES names nothing, or consumers answer typed rows",
        "rows are not the bytes of messages",
    }
