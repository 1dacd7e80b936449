"""``streamfactory-http`` from its wheel: its own tests and the kit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.distributions import journeys
from tests.distributions.proving import prove_by_own_kills

if TYPE_CHECKING:
    from tests.distributions.installing import Installed

TREE = Path(__file__).parents[2] / "distributions" / "streamfactory-http"


def test_its_own_tests_pass(http_client: Installed, tmp_path: Path) -> None:
    chosen = "not onformance and not kills"
    out = journeys.run_own_tests(http_client, TREE, tmp_path, kills=0, chosen=chosen)
    assert " passed" in out
    assert "skipped" not in out


@pytest.mark.long("starts a program for each kill")
def test_programs_that_are_killed_lose_nothing(
    http_client: Installed, tmp_path: Path
) -> None:
    verdict = prove_by_own_kills(http_client, "http", tmp_path, rounds=5)
    assert verdict.good
    assert verdict.kills == 10  # of a program that posts, and of one that receives


@pytest.mark.long("the whole kit")
def test_it_passes_the_kit(http_client: Installed, tmp_path: Path) -> None:
    kit = journeys.run_kit(http_client, "http", tmp_path)
    assert kit.failed == []
    assert kit.passed > 20
