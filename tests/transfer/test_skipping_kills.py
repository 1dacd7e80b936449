"""Kills of a copy that skips and of its backfill: `make prove PATHS=fresh` has more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.transfer.fresh_proving import prove

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow("kills processes")
def test_kills_of_both_lose_nothing_and_repeat_nothing(tmp_path: Path) -> None:
    verdict = prove(3, 11, tmp_path)
    assert (verdict.lost, verdict.twice, verdict.kills) == (0, 0, 3)
