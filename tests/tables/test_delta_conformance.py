"""The kit passes for ``delta``, on tables that ``deltalake`` writes."""

from __future__ import annotations

import pytest
from tests.conformance.parts import failures, run_part, slow_cases

from streamfactory.backends.delta.harness import DeltaHarness
from streamfactory.conformance.runner import Outcome, all_cases

PASSED = 78
"""Cases that are not slow, and that a type of typed rows can pass."""


@pytest.mark.long("they write a thousand commits")
def test_the_slow_cases_pass() -> None:
    assert failures(run_part(DeltaHarness, slow_cases())) == {}


def test_the_quick_kit_passes() -> None:
    cases = [case for case in all_cases() if not case.slow]
    results = run_part(DeltaHarness, cases)
    assert failures(results) == {}
    assert sum(r.outcome is Outcome.PASSED for r in results) >= PASSED
