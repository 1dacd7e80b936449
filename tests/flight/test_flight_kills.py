"""A few kills of the server, a writer and a reader."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.flight.proving import prove

if TYPE_CHECKING:
    from pathlib import Path


def test_killed_servers_writers_and_readers_lose_nothing(tmp_path: Path) -> None:
    verdict = prove(8, 3, tmp_path)
    assert (verdict.lost, verdict.twice, verdict.kills) == (0, 0, 8)
