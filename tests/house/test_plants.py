"""Defects that are planted: each is one change, and is caught or survives."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.proving import plants

from streamfactory.conformance.mutations import mutations_of

ROOT = Path(__file__).parents[2]


def test_every_folder_that_defects_are_planted_in_has_tests() -> None:
    for folder, tests in plants.RESPONSIBLE.items():
        assert list((ROOT / folder).glob("**/*.py")), folder
        for name in tests.split():
            assert list((ROOT / "tests" / name).glob("test_*.py")), name


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of a project of two functions, of which one is tested."""
    root = tmp_path / "project"
    files = {
        "spi/sums.py": (
            "def more(a):\n    return a + 1\n\ndef less(a):\n    return a - 1\n"
        ),
        "tests/spi/test_sums.py": (
            "from spi.sums import more\n\ndef test_more():\n    assert more(1) == 2\n"
        ),
        "conftest.py": "def pytest_addoption(parser): parser.addoption('--tier')\n",
        "left_out.py": "",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "link").symlink_to("spi")
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    subprocess.run(
        ["git", "add", "spi", "tests", "conftest.py", "link"], cwd=root, check=True
    )
    return plants.copy_of(root, tmp_path / "copy")


def test_a_copy_has_what_git_knows_and_links_as_links(tree: Path) -> None:
    assert not (tree / "left_out.py").exists()
    assert (tree / "link").readlink() == Path("spi")


@pytest.mark.slow("runs pytest on each of two defects")
def test_a_defect_is_caught_by_name_or_survives(tree: Path) -> None:
    module = tree / "spi" / "sums.py"
    whole = module.read_text()
    results = {}
    for plant in mutations_of(whole):
        if plant.after in {"(a - 1)", "(a + 1)"}:
            planted = plants.Planted("spi/sums.py", plant, ("tests/spi",))
            results[plant.before] = plants.tried(tree, planted)
            assert module.read_text() == whole
    assert results == {"a + 1": "tests/spi/test_sums.py::test_more", "a - 1": None}


def test_a_seed_plants_the_same_defects_again(tree: Path) -> None:
    found = [plants.chosen(tree, 2, seed) for seed in range(8)]
    assert found == [plants.chosen(tree, 2, seed) for seed in range(8)]
    assert len({tuple(one) for one in found}) > 1
