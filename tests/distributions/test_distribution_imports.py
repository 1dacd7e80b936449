"""What a distribution of others is allowed to import."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import pytest
from tests.distributions.installing import TREES

if TYPE_CHECKING:
    from pathlib import Path

ALLOWED = ("streamfactory.spi", "streamfactory.conformance")


def imports(path: Path) -> set[str]:
    """Full names of all that a module imports, wherever in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def ours(path: Path) -> set[str]:
    """What a module imports of streamfactory."""
    names = {name for name in imports(path) if name.split(".")[0] == "streamfactory"}
    return {n for n in names if not any(f"{n}.".startswith(f"{a}.") for a in ALLOWED)}


@pytest.mark.parametrize("tree", TREES, ids=lambda tree: tree.name)
def test_only_the_contract_and_the_kit_are_imported(tree: Path) -> None:
    modules = sorted((tree / "src").rglob("*.py"))
    assert len(modules) > 4
    assert {str(path): ours(path) for path in modules if ours(path)} == {}


@pytest.mark.parametrize("tree", TREES, ids=lambda tree: tree.name)
def test_its_tests_use_the_public_package_beside_them(tree: Path) -> None:
    modules = sorted((tree / "tests").rglob("*.py"))
    assert {
        str(path): ours(path) for path in modules if ours(path) - {"streamfactory"}
    } == {}


def test_another_import_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(
        "def f():\n    from streamfactory.wiring import core\n"
        "from streamfactory import spi, arrowlog\nimport streamfactory.spi.errors\n"
    )
    assert ours(path) == {"streamfactory.wiring.core", "streamfactory.arrowlog"}
