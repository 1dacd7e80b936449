"""The kit, on a folder of files and on one stream file that grows."""

from __future__ import annotations

from typing import Any

import pytest
from tests.foreign.stage import FolderHarness, GrowingHarness, Plugin, plugins

from streamfactory.conformance import Outcome, run
from streamfactory.conformance.runner import all_cases

SKIPPED = {
    "no secrets: the type declares none, and has no client to pass one to",
    "the type cannot be written",
    "no ability: acknowledge, acknowledged",
    "no ability: grow",
    "no ability: tombstone",
    "no ability: truncate",
    "not claimed: redelivers",
}


@pytest.mark.slow("the whole kit")
@pytest.mark.parametrize("harness", [FolderHarness, GrowingHarness])
def test_files_of_others_pass_the_kit(harness: Any) -> None:
    backend = Plugin().streamfactory_backend()
    results = list(run(backend, harness, plugins(), cases=all_cases()))
    failed = [(r.case.name, r.reason) for r in results if r.outcome is Outcome.FAILED]
    assert failed == []
    reasons = {r.reason for r in results if r.outcome is Outcome.SKIPPED}
    assert reasons == SKIPPED
