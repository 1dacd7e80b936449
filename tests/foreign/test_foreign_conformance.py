"""The kit, on folders of files and on one stream file that grows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.conformance.parts import chapters
from tests.foreign.stage import (
    FolderHarness,
    GrowingHarness,
    ParquetHarness,
    Plugin,
    plugins,
)

from streamfactory.conformance import Outcome, Subject, run
from streamfactory.conformance.runner import all_cases

if TYPE_CHECKING:
    from streamfactory.conformance import Case
    from streamfactory.conformance.bench import Bench

SKIPPED = {
    "no secrets: the type declares none, and has no client to pass one to",
    "the type cannot be written",
    "consumers answer typed rows, not envelopes",
    "no ability: acknowledge, acknowledged",
    "no ability: advance",
    "no ability: exceed",
    "no ability: freeze, thaw",
    "no ability: login_that_reads",
    "no ability: login_without_rights",
    "no ability: fetch_offsets_at",
    "no ability: fetch_offsets_at, write_messages",
    "no ability: fetch_topics",
    "no ability: finish",
    "no ability: gap",
    "no ability: grow",
    "no ability: publish_position, fetch_groups, fetch_positions",
    "no ability: refused_certificate",
    "no ability: refused_login",
    "no ability: stop, start",
    "no ability: tombstone",
    "no ability: topic_admin",
    "no ability: truncate",
    "no ability: unreachable",
    "no ability: rows, visible",
    "no ability: write_messages",
    "no ability: write_values",
    "not claimed: redelivers",
}


@pytest.mark.long("the whole kit, and a part of it")
@pytest.mark.parametrize(
    ("harness", "cases"),
    [
        (FolderHarness, all_cases()),
        (GrowingHarness, all_cases()),
        (ParquetHarness, chapters("reading", "metadata", "lifecycle", "processes")),
    ],
    ids=["folder", "growing", "parquet"],
)
def test_foreign_files_pass_the_kit(harness: Any, cases: list[Case[Bench]]) -> None:
    """Files of Parquet in a folder differ from those of Arrow where they are read."""
    backend = Plugin().streamfactory_backend()
    results = list(run(Subject(backend, harness, plugins()), cases=cases))
    failed = [(r.case.name, r.reason) for r in results if r.outcome is Outcome.FAILED]
    assert failed == []
    reasons = {r.reason for r in results if r.outcome is Outcome.SKIPPED}
    assert reasons - SKIPPED == set()
    assert cases != all_cases() or SKIPPED - reasons == set()
