"""Power cuts: synced rows are there; others are lost from the end, or reported."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from tests.proving import power
from tests.proving.tiers import sample

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    root = tmp_path_factory.mktemp("trace")
    return {f: power.steps(root / f, f) for f in ("always", "interval", "never")}


@pytest.mark.parametrize(
    "part",
    sample(
        [0, 4, 7, 1, 2, 3, 5, 6],
        "7 power cuts",
        keep=3,
        shown_by="tests/disklog/test_disklog_power.py::test_a_cut_loses_nothing_that_was_synced",
    ),
)
def test_a_cut_loses_nothing_that_was_synced(
    part: int, steps: dict[str, int], tmp_path: Path
) -> None:
    """Cut at a step of each part of the program, and then again and again."""
    chance = random.Random(part)
    cut = chance.randrange(*(steps["always"] * i // 8 for i in (part, part + 1)))
    cuts = [cut, *(chance.randrange(150) for _ in range(6))]
    verdict = power.survive(tmp_path, cuts, chance)
    assert verdict.good
    assert verdict.kills


@pytest.mark.long("200 power cuts")
@pytest.mark.parametrize(
    ("fsync", "possible"),
    [("interval", {"whole", "suffix", "refused"}), ("never", {"suffix", "refused"})],
)
def test_a_cut_takes_the_last_epochs_or_is_reported(
    fsync: str, possible: set[str], steps: dict[str, int], tmp_path: Path
) -> None:
    """Never a row that was not written, or that was and is missed in between."""
    chance = random.Random(3)
    ends = [
        power.lose(tmp_path / str(cut), cut, chance, fsync)
        for cut in chance.sample(range(steps[fsync]), 100)
    ]
    assert set(ends) == possible
