# ruff: noqa: INP001 - imported by a script, in no package
"""The reference of ``streamfactory.spi``, read from its sources."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

from streamfactory import spi

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def contract(*, errors: bool) -> str:
    """A heading for each public class and function, with fields and methods.

    Args:
        errors: Those of ``errors.py``, or all others.
    """
    lines: list[str] = []
    for path in sorted(Path(spi.__file__).parent.glob("[a-z]*.py")):
        if (path.stem == "errors") is not errors:
            continue
        nodes = ast.parse(path.read_text(encoding="utf-8")).body
        named = (ast.ClassDef, ast.FunctionDef)
        public = [n for n in nodes if isinstance(n, named) and n.name in spi.__all__]
        if public:
            lines += [f"## {path.stem}", ""]
        classes = {n.name: n for n in nodes if isinstance(n, ast.ClassDef)}
        for node in public:
            lines += _described(node, classes)
    return "\n".join(lines).rstrip()


def _described(
    node: ast.ClassDef | ast.FunctionDef, classes: Mapping[str, ast.ClassDef]
) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef):
        yield from (f"### `{_signature(node)}`", "", _first(node), "")
        return
    # A private base is shown as if its fields were those of the class.
    names = [ast.unparse(base) for base in node.bases]
    private = [classes[name] for name in names if name.startswith("_")]
    shown = [base for one in (node, *private) for base in map(ast.unparse, one.bases)]
    bases = ", ".join(base for base in shown if not base.startswith("_"))
    yield from (f"### {node.name}", "")
    if bases:
        yield from (f"`class {node.name}({bases})`", "")
    yield from (_first(node), "")
    inherited = [row for one in private for row in _fields(one)]
    rows = [*inherited, *_fields(node), *_methods(node)]
    if rows:
        yield from ("| | |", "|---|---|", *rows, "")


def _fields(node: ast.ClassDef) -> Iterator[str]:
    arguments = _arguments(node)
    for at, item in enumerate(node.body):
        if not isinstance(item, ast.AnnAssign | ast.Assign):
            continue
        target = item.target if isinstance(item, ast.AnnAssign) else item.targets[0]
        if not isinstance(target, ast.Name) or target.id.startswith("_"):
            continue
        after = node.body[at + 1] if at + 1 < len(node.body) else None
        meaning = arguments.get(target.id, "")
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            meaning = str(after.value.value)
        yield _row(ast.unparse(item), meaning)


def _arguments(node: ast.ClassDef) -> dict[str, str]:
    """What the class's docstring says of its arguments, by name."""
    text = ast.get_docstring(node) or ""
    part = text.partition("Args:\n")[2].split("\n\n")[0]
    found = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", part, re.MULTILINE)
    return {name: " ".join(meaning.split()) for name, meaning in found}


def _methods(node: ast.ClassDef) -> Iterator[str]:
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and not item.name.startswith("_"):
            yield _row(_signature(item), _first(item))


def _signature(node: ast.FunctionDef) -> str:
    arguments = ast.unparse(node.args).removeprefix("self, ").removeprefix("self")
    returns = "" if node.returns is None else f" -> {ast.unparse(node.returns)}"
    return f"{node.name}({arguments}){returns}"


def _first(node: ast.ClassDef | ast.FunctionDef) -> str:
    """The first paragraph of a docstring, on one line."""
    return " ".join((ast.get_docstring(node) or "").split("\n\n")[0].split())


def _row(code: str, meaning: str) -> str:
    cells = (f"`{code}`", " ".join(meaning.split()))
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"
