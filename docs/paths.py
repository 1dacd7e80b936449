# ruff: noqa: INP001 - a script, in no package
"""Draws which modules a batch passes, with the imports that the code has.

``docs/pictures.py`` includes these pictures, so that ``make check`` fails where the
code's imports are no longer those that are drawn. A line goes down from a module to one
that it imports, directly or through modules that are not drawn. What a drawn module
between the two imports has no line of its own.
"""

from __future__ import annotations

import ast
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pictures import Picture

ROOT: Final = Path(__file__).parents[1]
_PACKAGE: Final = "streamfactory."

_CONFIGURATION: Final = (
    "wiring/config/loading",
    "wiring/config/definition",
    "wiring/config/classification",
    "wiring/config/resolution",
    "wiring/config/crosschecks",
    "wiring/config/settled",
    "wiring/config/configure",
)
PATHS: Final[Mapping[str, tuple[str, Sequence[str]]]] = {
    "modules-reading": (
        "Modules that a batch passes when it is read; lines are imports",
        (
            "spark/source",
            "wiring/streams/stream",
            *_CONFIGURATION,
            "wiring/reading/source",
            "wiring/reading/metadata",
            "wiring/microbatch/planner",
            "spark/shipping",
            "spark/tasks",
            "wiring/reading/reader",
            "wiring/reading/fetching",
            "wiring/reading/losses",
            "wiring/reading/batches",
            "wiring/decoding/stage",
            "conversion/conform",
        ),
    ),
    "modules-writing": (
        "Modules that a batch passes when it is written; lines are imports",
        (
            "spark/sink",
            "transfer/copies",
            *_CONFIGURATION,
            "wiring/writing/sink",
            "wiring/writing/epochs",
            "wiring/writing/producer",
            "wiring/writing/writer",
            "wiring/writing/routing",
            "wiring/writing/committer",
            "conversion/conform",
        ),
    ),
}
"""Of each picture its title and its modules. All import the contract, ``spi/``."""

_WIDTH, _HEIGHT, _COLUMN, _ROW = 140, 34, 170, 74


def drawn(picture: type[Picture]) -> Mapping[str, Picture]:
    """The pictures, by the names of their files.

    Raises:
        FileNotFoundError: A module of a path does not exist.
    """
    return {name: _draw(picture, *path) for name, path in PATHS.items()}


def _draw(picture: type[Picture], title: str, modules: Sequence[str]) -> Picture:
    below = {module: _drawn_imports(module, frozenset(modules)) for module in modules}
    rows = _rows({module: _nearest(module, below) for module in modules})
    widest = max(map(len, rows))
    page = picture(title, 20 + _COLUMN * widest, 20 + _ROW * len(rows))
    places = {
        module: (20 + _COLUMN * column + _COLUMN * (widest - len(row)) // 2, y)
        for y, row in zip(range(20, page.height, _ROW), rows, strict=False)
        for column, module in enumerate(row)
    }
    for module, (x, y) in places.items():
        for target in sorted(_nearest(module, below)):
            to_x, to_y = places[target]
            middle = _WIDTH // 2
            page.arrow((x + middle, y + _HEIGHT), (to_x + middle, to_y - 2))
    for module, place in places.items():
        folder, _, name = module.rpartition("/")
        page.box(place, (_WIDTH, _HEIGHT), f"{name}|{folder}", "box")
    return page


def _rows(nearest: Mapping[str, set[str]]) -> list[list[str]]:
    """Modules by the longest way to them, importers first, near what they import."""
    rows: list[list[str]] = []
    order = TopologicalSorter({one: set() for one in nearest})
    for importer, targets in nearest.items():
        for target in targets:
            order.add(target, importer)
    level: dict[str, int] = {}
    place: dict[str, float] = {}
    for module in order.static_order():
        above = [one for one, targets in nearest.items() if module in targets]
        level[module] = max((level[one] + 1 for one in above), default=0)
        middles = [place[one] for one in above] or [float(len(level))]
        place[module] = sum(middles) / len(middles)
    for module in sorted(level, key=lambda one: (level[one], place[one], one)):
        if level[module] == len(rows):
            rows.append([])
        rows[-1].append(module)
    return rows


def _drawn_imports(module: str, drawn: frozenset[str]) -> set[str]:
    """The drawn modules that one imports, itself or through others."""
    found: set[str] = set()
    passed, waiting = {module}, [module]
    while waiting:
        for target in _imports(waiting.pop()):
            if target in passed:
                continue
            passed.add(target)
            (found.add if target in drawn else waiting.append)(target)
    return found


def _nearest(module: str, below: Mapping[str, set[str]]) -> set[str]:
    """What a module imports, without what a drawn module between them imports."""
    farther = {
        target
        for other in below[module]
        if module not in below[other]
        for target in below[other]
    }
    return below[module] - farther


@cache
def _imports(module: str) -> frozenset[str]:
    """The modules that one imports, those for type checkers left out."""
    tree = ast.parse(_file(module).read_text("utf-8"))
    return frozenset(
        target
        for name in _names(tree)
        if name.startswith(_PACKAGE)
        for target in _existing(name.removeprefix(_PACKAGE).replace(".", "/"))
    )


def _file(module: str) -> Path:
    path = ROOT / f"{module}.py"
    return path if path.exists() else ROOT / module / "__init__.py"


def _existing(name: str) -> Iterator[str]:
    """The module of ``a/b/C``, which is either a module or a name in ``a/b``."""
    for one in (name, name.rpartition("/")[0]):
        if one and _file(one).exists():
            yield one
            return


def _names(node: ast.AST) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
        else:
            yield from _names(child)
