"""A spool passes the kit as a durable backend, whatever is received into it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.spool.harness import (
    SpooledForgetfulHarness,
    SpooledRedeliveringHarness,
    SpooledSocketHarness,
    SpooledZeromqDealerHarness,
    SpooledZeromqHarness,
)

from streamfactory.conformance import Outcome, run
from streamfactory.conformance.subject import subject_of


@pytest.mark.long("the whole kit over five transports")
@pytest.mark.parametrize(
    "harness",
    [
        SpooledSocketHarness,
        SpooledZeromqHarness,
        SpooledZeromqDealerHarness,
        SpooledForgetfulHarness,
        SpooledRedeliveringHarness,
    ],
)
def test_a_spool_passes_the_kit(harness: Any) -> None:
    subject = subject_of(harness)
    results = list(run(subject))
    failed = [r for r in results if r.outcome is Outcome.FAILED]
    assert [(r.case.name, r.reason) for r in failed] == []
    reading = [r for r in results if not r.case.writing]
    skipped = {r.reason for r in reading if r.outcome is Outcome.SKIPPED}
    assert {reason for reason in skipped if "not claimed" in reason} == {
        "not claimed: redelivers"
    }
