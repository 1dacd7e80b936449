"""Kills of a pipeline without Spark: `make prove PATHS=rowwise` has more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.pipelines.rowwise_proving import prove

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow("kills processes")
def test_kills_lose_nothing_and_repeat_nothing(tmp_path: Path) -> None:
    verdict = prove(3, 5, tmp_path)
    assert (verdict.lost, verdict.twice, verdict.kills) == (0, 0, 3)
