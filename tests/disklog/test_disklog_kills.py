"""Processes that are killed before each kind of step; another one goes on."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from tests.proving import points
from tests.proving.program import trace
from tests.proving.stepping import SteppedStorage
from tests.proving.verdict import Verdict

if TYPE_CHECKING:
    from pathlib import Path

POINTS = [
    *("make log", "make data", "make index", "sync folder", "sync topic"),
    *("publish name", "link name", "settle name"),
    *("create segment", "finish segment", "sync segment", "sync data"),
    *("publish record", "sync temporary", "link record", "settle record", "sync log"),
    *("create part", "finish part", "sync part", "sync index"),
    *("publish snapshot", "link snapshot", "settle snapshot"),
    *("remove segment", "remove record", "remove snapshot", "remove part"),
    *("remove data", "remove index"),
]
"""Every kind of step, in about the order in which they are first taken."""


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return trace(tmp_path_factory.mktemp("trace"), SteppedStorage)


def test_every_kind_of_step_has_a_name_here(steps: list[str]) -> None:
    """One that is no longer taken is missed, too: a sync that somebody left out."""
    assert set(steps) == set(POINTS)


def test_what_makes_a_commit_safe_comes_in_its_order(steps: list[str]) -> None:
    """Rows, their name, the record, its name: each on the medium before the next."""
    commit = [
        *("create segment", "finish segment", "sync segment", "sync data"),
        *("publish record", "sync temporary", "link record", "settle record"),
        "sync log",
    ]
    found = "\n".join(steps)
    assert found.count("\n".join(commit)) > 20


def test_inline_commit_is_safe_after_two_syncs(steps: list[str]) -> None:
    """The record is on the medium, then its name, and nothing else is written."""
    commit = ["publish record", "sync temporary", "link record", "settle record"]
    found = "\n".join(steps).replace("\n".join([*commit, "sync log"]), "commit")
    assert found.count("commit\ncommit") >= 3


@pytest.mark.slow("kills processes")
@pytest.mark.parametrize("name", POINTS)
def test_a_kill_before_a_step_costs_nothing(
    name: str, steps: list[str], tmp_path: Path
) -> None:
    """Every row once and in order, and nothing of the dead outlives the sweep."""
    number = random.Random(name).randrange(steps.count(name))
    points.kill(tmp_path, name, number)
    assert points.go_on(tmp_path) == Verdict()


def test_kills_one_after_another_cost_nothing(tmp_path: Path) -> None:
    """Each of those who go on is killed as well, but for the last one."""
    chance = random.Random(7)
    for _ in range(8):
        points.kill(tmp_path, None, chance.randrange(60))
    assert points.go_on(tmp_path) == Verdict()
