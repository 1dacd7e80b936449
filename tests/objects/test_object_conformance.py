"""The kit, on topics in a bucket of a real server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.conformance.parts import chapters
from tests.objects.stage import ObjectHarness, storage_at

from streamfactory.backends.file import streamfactory_backend
from streamfactory.conformance import Outcome, Subject, run
from streamfactory.conformance.runner import all_cases
from streamfactory.wiring.plugins.manager import PluginManager

if TYPE_CHECKING:
    from tests.objects.server import ObjectServer

    from streamfactory.conformance import Case
    from streamfactory.conformance.bench import Bench

MADE_UP = {"a_referenced_secret_is_never_shown", "a_literal_secret_is_masked"}
"""They make up a value for each secret that the harness does not give, and a server
that checks refuses it: what they are about is shown in `test_object_secrets.py`."""

SKIPPED = {
    "CARRIES names nothing, or consumers answer typed rows",
    "consumers answer typed rows, not envelopes",
    "no ability: acknowledge, acknowledged",
    "no ability: finish",
    "no ability: gap",
    "no ability: publish_position, fetch_groups, fetch_positions",
    "no ability: refused_certificate",
    "no ability: refused_login",
    "no ability: stop, start",
    "no ability: tombstone",
    "no ability: unreachable",
    "no ability: write_messages",
    "no ability: write_values",
    "not claimed: redelivers",
    "rows are not the bytes of messages",
    "not claimed: epoch_visibility=task",
}


STORED = ("reading", "metadata", "administration", "writing", "commits")
"""Chapters whose outcome depends on how and in which order objects are stored."""


@pytest.mark.usefixtures("credentials")
@pytest.mark.parametrize(
    "chosen",
    [
        pytest.param(
            chapters(*STORED), id="stored", marks=pytest.mark.long("half of the kit")
        ),
        pytest.param(
            all_cases(),
            id="all",
            marks=pytest.mark.repeated(
                "the kit of `file` once more, in a bucket",
                shown_by="tests/objects/test_object_conformance.py::"
                "test_topics_in_a_bucket_pass_the_kit[stored]",
            ),
        ),
    ],
)
def test_topics_in_a_bucket_pass_the_kit(
    server: ObjectServer, url: str, chosen: list[Case[Bench]]
) -> None:
    # What the client keeps for the life of the process is no leak of a case.
    first = storage_at(server.endpoint, url)
    first.names("")
    first.close()
    cases = [case for case in chosen if case.name not in MADE_UP]
    results = list(
        run(
            Subject(streamfactory_backend(), ObjectHarness, PluginManager()),
            cases=cases,
            quick=True,
        )
    )
    failed = [(r.case.name, r.reason) for r in results if r.outcome is Outcome.FAILED]
    assert failed == []
    reasons = {r.reason for r in results if r.outcome is Outcome.SKIPPED}
    reasons -= {"slow: left out by --quick"}
    assert reasons == SKIPPED if chosen == all_cases() else reasons <= SKIPPED
