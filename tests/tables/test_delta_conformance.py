"""The kit passes for ``delta``, on tables that ``deltalake`` writes."""

from __future__ import annotations

import pytest

from streamfactory.backends.delta.harness import DeltaHarness
from streamfactory.conformance.runner import Outcome, all_cases, run
from streamfactory.conformance.subject import find_subject
from streamfactory.conformance.suite import ConformanceSuite

PASSED = 51
"""Cases that are not slow, and that a type which is only read can pass."""


@pytest.mark.long("the slow cases write a thousand commits")
class TestDelta(ConformanceSuite):
    harness = DeltaHarness


def test_the_quick_kit_passes() -> None:
    subject = find_subject("delta")
    cases = [case for case in all_cases() if not case.slow]
    results = list(run(subject, cases=cases))
    wrong = [r.case.name for r in results if r.outcome is Outcome.FAILED]
    assert not wrong
    assert sum(r.outcome is Outcome.PASSED for r in results) >= PASSED
