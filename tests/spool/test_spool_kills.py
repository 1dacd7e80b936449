"""A few kills of senders, receivers and readers of spools."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.spool.proving import prove

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow("kills processes")


def test_killed_senders_receivers_and_readers_lose_nothing_unnamed(
    tmp_path: Path,
) -> None:
    verdict = prove(12, 5, tmp_path)
    assert (verdict.lost, verdict.twice, verdict.kills) == (0, 0, 12)
