"""``streamfactory init``: a project that works as it is made."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.proving.commands import Outcome


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_what_it_makes_works_as_its_readme_says(
    streamfactory: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = streamfactory("init", "shop", "--json").json
    assert made["folder"] == "shop"
    assert "README.md" in made["files"]
    monkeypatch.chdir("shop")
    readme = Path("README.md").read_text()
    assert set(re.findall(r"^\| `(\S+)` \|", readme, re.MULTILINE)) == {
        name for name in made["files"] if name != "README.md"
    }
    commands = re.findall(r"^    streamfactory (.*)$", readme, re.MULTILINE)
    outcomes = [streamfactory(*command.split()) for command in commands[:3]]
    assert [one.status for one in outcomes] == [0, 0, 0], outcomes
    assert outcomes[-1].out.splitlines()[-1].split()[1] == "ann"
    again = streamfactory("publish", "orders", "orders.csv", "--writer", "shop")
    assert "orders: 0 rows in 0 epochs" in again.out


@pytest.mark.long("starts Spark's Java")
@pytest.mark.usefixtures("own_spark")
def test_its_pipeline_is_valid(program: Callable[..., Outcome]) -> None:
    # In a process of its own: the shared session cannot use a Java that runs already.
    assert program("init").status == 0
    outcome = program("validate", "configs/pipelines/spent.toml")
    assert outcome.status == 0, outcome


def test_existing_files_are_not_overwritten(
    streamfactory: Callable[..., Outcome], folder: Path
) -> None:
    Path("compose.yaml").write_text("mine\n")
    outcome = streamfactory("init")
    assert outcome.status == 2
    assert "compose.yaml: there already, and nothing is overwritten." in outcome.err
    assert [path.name for path in folder.iterdir()] == ["compose.yaml"]
    assert Path("compose.yaml").read_text() == "mine\n"


def test_a_folder_that_cannot_be_made_is_named(
    streamfactory: Callable[..., Outcome],
) -> None:
    Path("taken").write_text("")
    outcome = streamfactory("init", "taken/shop")
    assert outcome.status == 2
    assert "taken/shop" in outcome.err
