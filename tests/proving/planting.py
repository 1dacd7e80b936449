"""Small defects of a module: one comparison, number or statement is changed.

`plants_of` finds all that a module's source can have; `Plant.apply` makes one. The
rest of the text stays as it is, with its lines.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_COMPARED: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_COMPUTED: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
}
_DECLARED: Final = {"annotation", "returns", "decorator_list", "type_params", "bases"}
"""Fields of nodes in which nothing is planted: they are no steps of a computation."""


@dataclass(frozen=True, order=True)
class Plant:
    """One defect: where it stands, and the texts before and after."""

    line: int
    begin: int
    """Bytes before it."""
    end: int
    before: str
    after: str

    def __str__(self) -> str:
        before, after = (" ".join(t.split()) for t in (self.before, self.after))
        return f"`{before[:60]}` -> `{after[:60]}`"

    def apply(self, source: str) -> str:
        """The source with this defect."""
        text = source.encode()
        return (text[: self.begin] + self.after.encode() + text[self.end :]).decode()


def plants_of(source: str) -> list[Plant]:
    """All defects that can be planted in a module's source, in their order."""
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = []
    for node, after in _changes(ast.parse(source)):
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        begin = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        before = source.encode()[begin:end].decode()
        if before != after:
            found.append(Plant(node.lineno, begin, end, before, after))
    return sorted(found)


def _changes(tree: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """Nodes, and the text that each is replaced by."""
    for node in _steps(tree):
        if isinstance(node, ast.expr):
            changed = _changed(node)
            if changed is not None:
                yield node, f"({ast.unparse(changed)})"
        elif isinstance(node, ast.stmt):
            text = _replaced(node)
            if text is not None:
                yield node, text


def _changed(node: ast.expr) -> ast.expr | None:
    match node:
        case ast.Compare(left, [operator, *more], [first, *others]):
            other = _COMPARED[type(operator)]()
            return ast.Compare(left, [other, *more], [first, *others])
        case ast.BoolOp(operator, values):
            opposite = ast.Or() if isinstance(operator, ast.And) else ast.And()
            return ast.BoolOp(opposite, values)
        case ast.UnaryOp(ast.Not(), operand):
            return operand
        case ast.BinOp(left, operator, right) if type(operator) in _COMPUTED:
            return ast.BinOp(left, _COMPUTED[type(operator)](), right)
        case ast.Constant(bool(value)):
            return ast.Constant(not value)
        case ast.Constant(int(value)):
            return ast.Constant(value + 1)
        case ast.IfExp(test, body, orelse):
            return ast.IfExp(test, orelse, body)
    return None


def _replaced(node: ast.stmt) -> str | None:
    match node:
        case ast.Expr(ast.Call()) | ast.Raise() | ast.AugAssign():
            return "pass"
        case ast.Return(value) if value is not None:
            return "return None"
        case ast.Continue():
            return "break"
        case ast.Break():
            return "continue"
    return None


def _steps(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of what is computed: no declarations, f-strings and type imports."""
    if isinstance(node, ast.JoinedStr):
        return
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return
    yield node
    for name, value in ast.iter_fields(node):
        if name in _DECLARED:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _steps(child)
