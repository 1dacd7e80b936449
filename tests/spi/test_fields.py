"""Each field of a public dataclass of the contract is documented."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import sys
from itertools import pairwise
from typing import TYPE_CHECKING

from streamfactory import spi

if TYPE_CHECKING:
    from collections.abc import Iterator


def undocumented(kind: type) -> Iterator[str]:
    """Fields without a docstring behind them, or a word in that of the class."""
    source = inspect.getsource(sys.modules[kind.__module__])
    [found] = [
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef) and node.name == kind.__name__
    ]
    for statement, following in pairwise([*found.body, None]):
        if not isinstance(statement, ast.AnnAssign):
            continue
        assert isinstance(statement.target, ast.Name)
        name = statement.target.id
        is_text = isinstance(following, ast.Expr) and isinstance(
            following.value, ast.Constant
        )
        if not (name.startswith("_") or is_text or name in (kind.__doc__ or "")):
            yield f"{kind.__name__}.{name}"


def test_every_field_of_a_public_dataclass_is_documented() -> None:
    kinds = [
        kind
        for kind in (getattr(spi, name) for name in spi.__all__)
        if isinstance(kind, type) and dataclasses.is_dataclass(kind)
    ]
    assert len(kinds) > 15
    assert [field for kind in kinds for field in undocumented(kind)] == []
