"""Defects that are planted: each is one change, and is caught or survives."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

import pytest
from tests.proving import plants
from tests.proving.planting import plants_of

ROOT = Path(__file__).parents[2]
MODULE = '''
"""A text < another."""
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence
LEAST: Final[int] = 1


@cached(maxsize=3)
def half(values: "Sequence[int] | None" = None, é=True) -> bool:
    """Not 1."""
    for value in values or ():
        if not value:
            continue
        total = value + 2 if value in (
            4, 5
        ) else f"{value - 6}"
        log(total)
    raise ValueError
    return value is None
'''


def test_each_change_of_what_is_computed_is_a_defect_and_no_declaration() -> None:
    found = [(one.line, one.before, one.after) for one in plants_of(MODULE)]
    assert found == [
        (7, "1", "(2)"),
        (11, "True", "(False)"),
        (13, "values or ()", "(values and ())"),
        (14, "not value", "(value)"),
        (15, "continue", "break"),
        (16, "value + 2", "(value - 2)"),
        (
            16,
            'value + 2 if value in (\n            4, 5\n        ) else f"{value - 6}"',
            "(f'{value - 6}' if value in (4, 5) else value + 2)",
        ),
        (16, "2", "(3)"),
        (16, "value in (\n            4, 5\n        )", "(value not in (4, 5))"),
        (17, "4", "(5)"),
        (17, "5", "(6)"),
        (19, "log(total)", "pass"),
        (20, "raise ValueError", "pass"),
        (21, "return value is None", "return None"),
        (21, "value is None", "(value is not None)"),
    ]


def test_a_defect_changes_nothing_else() -> None:
    for one in plants_of(MODULE):
        changed = one.apply(MODULE)
        ast.parse(changed)
        encoded = one.after.encode()
        text, whole = changed.encode(), MODULE.encode()
        assert text[: one.begin] == whole[: one.begin]
        assert text[one.begin : one.begin + len(encoded)] == encoded
        assert text[one.begin + len(encoded) :] == whole[one.end :]


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
    for plant in plants_of(whole):
        if plant.after in {"(a - 1)", "(a + 1)"}:
            planted = plants.Planted("spi/sums.py", plant, ("tests/spi",))
            results[plant.before] = plants.tried(tree, planted)
            assert module.read_text() == whole
    assert results == {"a + 1": "tests/spi/test_sums.py::test_more", "a - 1": None}


def test_a_seed_plants_the_same_defects_again() -> None:
    first, again = (plants.chosen(ROOT, 5, 7) for _ in range(2))
    assert first == again
    assert plants.chosen(ROOT, 5, 8) != first
