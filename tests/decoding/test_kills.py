"""A copy that is killed, again and again, keeps each row and each dead letter once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.decoding.proving import prove, prove_replays

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.long("kills commands")
def test_kills_lose_nothing_and_repeat_nothing(tmp_path: Path) -> None:
    verdict = prove(3, 7, tmp_path)
    assert (verdict.lost, verdict.twice, verdict.kills) == (0, 0, 3)


@pytest.mark.long("kills commands")
def test_killed_replays_write_each_message_once(tmp_path: Path) -> None:
    verdict = prove_replays(4, 7, tmp_path)
    assert (verdict.lost, verdict.twice, verdict.kills) == (0, 0, 4)
