"""``streamfactory-http`` from its wheel: its own tests and the kit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.distributions import journeys

if TYPE_CHECKING:
    from tests.distributions.installing import Installed

TREE = Path(__file__).parents[2] / "distributions" / "streamfactory-http"


def test_its_own_tests_pass(http_client: Installed, tmp_path: Path) -> None:
    out = journeys.run_own_tests(http_client, TREE, tmp_path, kills=1)
    assert " passed" in out
    assert "skipped" not in out


@pytest.mark.long("the whole kit")
def test_it_passes_the_kit(http_client: Installed, tmp_path: Path) -> None:
    kit = journeys.run_kit(http_client, "http", tmp_path)
    assert kit.failed == []
    assert kit.passed > 20
