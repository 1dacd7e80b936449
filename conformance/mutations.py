"""Small changes of a module's source, each of which is likely to be a defect.

`mutations_of` finds all that a source can have; `Mutation.apply` makes one. The rest of
the text stays as it is, with its lines.
"""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_NEXT_TO: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}
_OPPOSITE: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
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
"""Fields of nodes in which nothing is changed: they are no steps of a computation."""
_NOTHING: Final = ast.Constant(None)
_SHOWING: Final = {"__repr__", "__str__"}
"""Functions whose result is shown to people."""
_LOGGED: Final = {"debug", "info", "warning", "error", "exception", "critical", "log"}
"""Methods of a logger."""
_TEXTS: Final = {"remedy", "doc", "hint"}
"""Arguments that are shown to people."""


@dataclass(frozen=True, order=True)
class Mutation:
    """One change: where it stands, and the texts before and after."""

    line: int
    begin: int
    """Bytes before it."""
    end: int
    before: str
    after: str
    kind: str
    """``off by one``, ``dropped call``, ``swapped arguments``, ..."""
    where: str
    """Function or class around it, as ``Reader.fetch``; empty at the top."""
    lines: tuple[int, int]
    """From the first line of its statement to its own last line."""
    text: str = ""
    """Its first line, without the spaces around it."""

    def __str__(self) -> str:
        before, after = (" ".join(t.split()) for t in (self.before, self.after))
        return f"`{before[:60]}` -> `{after[:60]}`"

    def apply(self, source: str) -> str:
        """The source with this change."""
        text = source.encode()
        return (text[: self.begin] + self.after.encode() + text[self.end :]).decode()


@dataclass(frozen=True, slots=True)
class _Step:
    """A node of what is computed, and where it is."""

    node: ast.AST
    where: str
    statement: int
    """Line of the statement around it."""


def mutations_of(source: str) -> list[Mutation]:
    """All changes that can be made in a module's source, in their order."""
    text = source.encode()
    starts, written = [0], text.splitlines(keepends=True)
    for line in written:
        starts.append(starts[-1] + len(line))
    found = set()
    for step in _steps(ast.parse(source)):
        for node, after, kind in _changes(step.node, source):
            assert node.end_lineno is not None
            assert node.end_col_offset is not None
            begin = starts[node.lineno - 1] + node.col_offset
            end = starts[node.end_lineno - 1] + node.end_col_offset
            before = text[begin:end].decode()
            lines = (min(step.statement, node.lineno), node.end_lineno)
            if before != after:
                place = (node.lineno, begin, end, before, after)
                first = written[node.lineno - 1].decode().strip()
                found.add(Mutation(*place, kind, step.where, lines, first))
    return sorted(found)


def _changes(
    node: ast.AST, source: str
) -> Iterator[tuple[ast.expr | ast.stmt, str, str]]:
    """What can be replaced at a node: the part, its other text, the kind of change."""
    if isinstance(node, ast.expr):
        for part, changed, kind in _changed(node):
            yield part, f"({ast.unparse(changed)})", kind
    elif isinstance(node, ast.stmt):
        for text, kind in _replaced(node, source):
            yield node, text, kind
        match node:
            case ast.Assign([ast.Attribute()], value) if not _constant(value):
                yield value, "(None)", "constant for a field"


def _changed(node: ast.expr) -> Iterator[tuple[ast.expr, ast.expr, str]]:
    match node:
        case ast.Compare(left, [operator, *more], [first, *others]):
            by_one = type(operator) in _NEXT_TO
            other = (_NEXT_TO if by_one else _OPPOSITE)[type(operator)]()
            compared = ast.Compare(left, [other, *more], [first, *others])
            yield node, compared, "off by one" if by_one else "other condition"
        case ast.BoolOp(operator, values):
            opposite = ast.Or() if isinstance(operator, ast.And) else ast.And()
            yield node, ast.BoolOp(opposite, values), "other condition"
        case ast.UnaryOp(ast.Not(), operand):
            yield node, operand, "other condition"
        case ast.IfExp(test, body, orelse):
            yield node, ast.IfExp(test, orelse, body), "other condition"
        case ast.BinOp(left, operator, right) if type(operator) in _COMPUTED:
            computed = ast.BinOp(left, _COMPUTED[type(operator)](), right)
            yield node, computed, "other operation"
        case ast.Constant(bool(value)):
            yield node, ast.Constant(not value), "other constant"
        case ast.Constant(int(value)):
            yield node, ast.Constant(value + 1), "off by one"
        case ast.Dict(_, members):
            for member in members:
                if not _constant(member):
                    yield member, _NOTHING, "constant for a field"
        case ast.Call():
            yield from _called(node)


def _called(node: ast.Call) -> Iterator[tuple[ast.expr, ast.expr, str]]:
    arguments = node.args
    if len(arguments) > 1 and not any(isinstance(a, ast.Starred) for a in arguments):
        for at, (one, two) in enumerate(pairwise(arguments)):
            swapped = [*arguments[:at], two, one, *arguments[at + 2 :]]
            # Of the least and the greatest the order is the same.
            if not _bounds(node):
                call = ast.Call(node.func, swapped, node.keywords)
                yield node, call, "swapped arguments"
    if _bounds(node) and len(arguments) > 1:
        yield node, arguments[0], "dropped call"
        yield node, arguments[-1], "dropped call"
    for keyword in node.keywords:
        if keyword.arg not in (None, *_TEXTS) and not _constant(keyword.value):
            yield keyword.value, _NOTHING, "constant for a field"


def _bounds(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Name) and node.func.id in ("min", "max")


def _constant(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant | ast.Dict | ast.List | ast.Tuple)


def _replaced(node: ast.stmt, source: str) -> Iterator[tuple[str, str]]:
    match node:
        case ast.Expr(ast.Call() as call):
            yield "pass", "dropped call"
            if not _appends(call) and not _is_base(call.func):
                yield _suppressed(node, source), "caught error"
        case ast.Raise():
            yield "pass", "caught error"
        case ast.AugAssign():
            yield "pass", "dropped statement"
        case ast.Return(value) if value is not None and not _is_none(value):
            yield "return None", "other constant"
        case ast.Continue():
            yield "break", "dropped statement"
        case ast.Break():
            yield "continue", "dropped statement"


def _appends(node: ast.Call) -> bool:
    """Whether a known value is appended to a list, which raises nothing."""
    known = all(
        isinstance(a, ast.Name | ast.Attribute | ast.Constant) for a in node.args
    )
    return isinstance(node.func, ast.Attribute) and node.func.attr == "append" and known


def _is_base(node: ast.expr) -> bool:
    """Whether it is ``super().__init__``, which raises nothing."""
    match node:
        case ast.Attribute(ast.Call(ast.Name("super")), "__init__"):
            return True
    return False


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _suppressed(node: ast.stmt, source: str) -> str:
    """A statement whose errors are ignored, on the lines that it had."""
    text = ast.get_source_segment(source, node)
    return f'with __import__("contextlib").suppress(Exception): {text}'


def _steps(
    node: ast.AST,
    where: tuple[str, ...] = (),
    statement: int = 1,
    texts: frozenset[str] = frozenset(),
) -> Iterator[_Step]:
    """The nodes of what is computed: no declarations, type imports and texts.

    Args:
        node: The tree.
        where: Functions and classes around it.
        statement: Line of the statement around it.
        texts: Names of the function around it whose values only people read.
    """
    if _declares(node) or _is_text(node, texts):
        return
    if isinstance(node, ast.stmt):
        statement = node.lineno
    yield _Step(node, ".".join(where), statement)
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        where, texts = (*where, node.name), _text_names(node)
    for name, value in ast.iter_fields(node):
        if name in _DECLARED:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _steps(child, where, statement, texts)


def _is_text(node: ast.AST, texts: frozenset[str]) -> bool:
    """Whether a node makes what people read: another text is no other behaviour."""
    match node:
        case ast.JoinedStr():
            return True
        case ast.FunctionDef(name):
            return name in _SHOWING
        case ast.Assign([ast.Name(name)]) | ast.AugAssign(ast.Name(name)):
            return name in texts
        case ast.keyword(name):
            return name in _TEXTS
        case ast.Expr(ast.Call(ast.Attribute(ast.Name(name), method))):
            return method in _LOGGED and "log" in name.lower()
    return False


def _text_names(function: ast.AST) -> frozenset[str]:
    """Names that a function uses only in texts that people read."""
    every = Counter(_loaded(function))
    texts: frozenset[str] = frozenset()
    while True:
        # What is used only in the text of a name in `texts` is one of them, too.
        shown = Counter(
            name for part in _shown(function, texts) for name in _loaded(part)
        )
        found = frozenset(name for name in shown if shown[name] == every[name])
        if found == texts:
            return found
        texts = found


def _shown(node: ast.AST, texts: frozenset[str]) -> Iterator[ast.AST]:
    """The parts of a tree that make texts which people read; none within another."""
    match node:
        case ast.Raise(ast.Call(_, [message, *fields], keywords)):
            yield message
            rest: Iterable[ast.AST] = (*fields, *keywords)
        case ast.JoinedStr():  # may be a key
            rest = node.values
        case _ if _is_text(node, texts):
            yield node
            return
        case _:
            rest = ast.iter_child_nodes(node)
    for child in rest:
        yield from _shown(child, texts)


def _loaded(node: ast.AST) -> list[str]:
    return [
        n.id
        for n in ast.walk(node)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
    ]


def _declares(node: ast.AST) -> bool:
    """Whether nothing is computed here: options have the bounds that they state."""
    match node:
        case ast.If(test):
            return ast.unparse(test) in ("TYPE_CHECKING", "__name__ == '__main__'")
        case ast.Call(ast.Name(name) | ast.Attribute(attr=name)):
            return name == "Option"
    return False
