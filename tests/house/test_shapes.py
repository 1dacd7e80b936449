"""No stream type codes what another one codes: a shared rule has one base.

Functions are compared by the shape of their code: names, texts, numbers, annotations
and docstrings do not count.
"""

from __future__ import annotations

import ast
import textwrap
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

BACKENDS = Path(__file__).parents[2] / "backends"
LINES = 8
"""Of a function that is compared."""
ALIKE = 0.55
"""Share of common runs of two functions from which they are one rule. Two consumers
that differed in one rule had 0.59."""
RUN = 5
"""Nodes of a run."""
DECLARING = {"__init__", "streamfactory_backend"}
"""Lists of attributes and of fields: alike without a rule in them."""
UNSEEN = {"annotation", "returns", "type_params", "ctx", "decorator_list"}


@dataclass(frozen=True)
class Function:
    """A function, and the runs of nodes that it consists of."""

    module: str
    name: str
    runs: frozenset[int]

    @property
    def folder(self) -> str:
        return self.module.partition("/")[0]

    def alike(self, other: Function) -> float:
        fewer, more = sorted((len(self.runs), len(other.runs)))
        if fewer < ALIKE * more:
            return 0.0  # without the intersection, which costs more
        common = len(self.runs & other.runs)
        return common / (fewer + more - common)


def nodes_of(node: ast.AST) -> Iterator[str]:
    """The kinds of nodes in order; texts and numbers are one kind."""
    if isinstance(node, ast.Constant | ast.JoinedStr):
        yield "constant"
        return
    yield type(node).__name__
    for field, value in ast.iter_fields(node):
        if field in UNSEEN:
            continue
        if isinstance(value, list):
            yield "["
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from nodes_of(child)


def functions_of(module: str, source: str) -> Iterator[Function]:
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.FunctionDef) or node.name in DECLARING:
            continue
        body = node.body[int(ast.get_docstring(node, clean=False) is not None) :]
        if not body or (body[-1].end_lineno or 0) - body[0].lineno + 1 < LINES:
            continue
        nodes = [kind for statement in body for kind in nodes_of(statement)]
        shifted = (nodes[start:] for start in range(RUN))
        runs = frozenset(map(hash, zip(*shifted, strict=False)))
        yield Function(module, node.name, runs)


def pairs_alike(functions: Iterable[Function]) -> list[str]:
    return [
        f"{one.module} {one.name} ~ {other.module} {other.name}: {found:.2f}"
        for one, other in combinations(functions, 2)
        if one.folder != other.folder and (found := one.alike(other)) >= ALIKE
    ]


def test_no_stream_type_has_a_function_of_the_shape_of_anothers() -> None:
    functions = [
        function
        for path in sorted(BACKENDS.rglob("*.py"))
        for function in functions_of(
            path.relative_to(BACKENDS).as_posix(), path.read_text("utf-8")
        )
    ]
    assert len(functions) > 300
    assert pairs_alike(functions) == []


ONE = '''
def schema(self, topic: str) -> Schema:
    """The schema of the first writer."""
    readers = self._factory.readers
    deadline = time.monotonic() + 0.2
    while readers.holder.schema is None:
        for reader in readers.each:
            reader.look(0.05 / len(readers.each))
        if time.monotonic() > deadline:
            msg = "no writer has sent a schema"
            raise StreamTimeout(msg, remedy="start the writer")
    return readers.holder.schema
'''
RENAMED = """
def columns(self, name: Name) -> object:
    peers = self._owner.peers
    until = clock.now() + 5
    while peers.known.columns is None:
        for peer in peers.all:
            peer.poll(1 / len(peers.all))
        if peers.closed:
            raise Closed
        if clock.now() > until:
            what = f"{name} has no columns"
            raise TooLate(what, hint="wait")
    return peers.known.columns
"""
ANOTHER = """
def sizes(self, frame: bytes) -> list[int]:
    at, found = 0, []
    while at < len(frame):
        head = frame[at : at + 8]
        if head == END:
            break
        size = int.from_bytes(head[4:], "little")
        found.append(size)
        at += 8 + size
    return found
"""


def test_the_check_sees_a_copy_with_other_names_and_one_more_rule() -> None:
    sources = (("a/x.py", ONE), ("b/y.py", RENAMED), ("c/z.py", ANOTHER))
    found = [one for name, text in sources for one in functions_of(name, text)]
    [pair] = pairs_alike(found)
    assert pair.startswith("a/x.py schema ~ b/y.py columns")


def test_the_check_leaves_one_stream_type_and_short_functions_alone() -> None:
    twice = [*functions_of("a/x.py", ONE), *functions_of("a/y.py", RENAMED)]
    assert pairs_alike(twice) == []
    short = textwrap.dedent(
        """
        def a(self):
            return self.b
        """
    )
    assert [*functions_of("a/x.py", short)] == []
