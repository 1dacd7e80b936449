"""A few kills of writers and a reader; `make prove PATHS=shm` makes more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.shm.proving import prove

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow("3 kills of processes")
def test_kills_lose_no_row_and_repeat_none(tmp_path: Path) -> None:
    verdict = prove(3, 5, tmp_path)
    assert verdict.good, verdict.notes
    assert verdict.kills == 3
