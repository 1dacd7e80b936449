"""``streamfactory-postgres`` from its wheel: its own tests, the kit and kills."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.distributions import journeys
from tests.distributions.installing import ROOT
from tests.distributions.journeys import LACKING, RIGHTS_AND_BOUNDS
from tests.distributions.proving import prove_one

if TYPE_CHECKING:
    from pathlib import Path

    from tests.distributions.installing import Installed

TESTS = ROOT / "distributions" / "streamfactory-postgres"
TYPED = {
    "CARRIES names nothing, or consumers answer typed rows",
    "consumers answer typed rows, not envelopes",
    "no ability: acknowledged",
    "no ability: gap",
    "no ability: grow",
    "no ability: tombstone",
    "no ability: write_messages",
    "no ability: write_values",
    "not claimed: redelivers",
    "rows are not the bytes of messages",
}


def test_its_own_tests_pass(postgres_server: Installed, tmp_path: Path) -> None:
    out = journeys.run_own_tests(postgres_server, TESTS, tmp_path, kills=3)
    assert " passed" in out
    assert "skipped" not in out


NOT_MADE = ("topics are not made from nothing", "not run: it builds on topics_are_")
CHANGES = {
    "no ability: truncate (a slot keeps what is not acknowledged)",
    "no ability: rows, visible (changes are written by programs that write the table)",
    "no ability: fetch_topics",
    "streams of the type have one partition",
    "the type cannot be written",
    "truncation is not supported",
}


@pytest.mark.long("the whole kit")
def test_its_changes_pass_the_kit(postgres_server: Installed, tmp_path: Path) -> None:
    kit = journeys.run_kit(postgres_server, "postgres-changes", tmp_path)
    assert kit.failed == []
    others = {why for why in kit.skipped if not why.startswith(NOT_MADE)}
    assert others <= LACKING | RIGHTS_AND_BOUNDS | TYPED | CHANGES
    assert kit.passed > 50


@pytest.mark.long("the whole kit")
def test_it_passes_the_kit(postgres_server: Installed, tmp_path: Path) -> None:
    kit = journeys.run_kit(postgres_server, "postgres", tmp_path)
    assert kit.failed == []
    assert kit.skipped <= LACKING | RIGHTS_AND_BOUNDS | TYPED
    assert kit.passed > 3


@pytest.mark.repeated(
    "more kills than those of its own tests",
    shown_by="tests/distributions/test_postgres_distribution.py::test_its_own_tests_pass",
)
def test_the_command_for_authors_proves_it(
    postgres_server: Installed, tmp_path: Path
) -> None:
    assert prove_one(postgres_server, "postgres", tmp_path, rounds=10).good
