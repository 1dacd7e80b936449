"""What a query is made of, as the parser returns it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Node:
    """A part of an expression."""

    line: int


@dataclass(frozen=True, slots=True)
class Name(Node):
    """A column."""

    name: str
    of: str | None = None
    """The id or alias before its dot."""


@dataclass(frozen=True, slots=True)
class Literal(Node):
    """A value."""

    kind: str
    """``int``, ``bigint``, ``decimal``, ``double``, ``text``, ``bool``, ``null``,
    ``date`` or ``timestamp``."""
    text: str


@dataclass(frozen=True, slots=True)
class Operation(Node):
    """An operator with its operands: a sign, or words such as ``is null``."""

    name: str
    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Cast(Node):
    """A conversion."""

    value: Node
    to: str
    safe: bool
    """Whether it is ``try_cast``."""


@dataclass(frozen=True, slots=True)
class Case(Node):
    """Branches: conditions with their values, and the value without any."""

    branches: tuple[tuple[Node, Node], ...]
    otherwise: Node | None


@dataclass(frozen=True, slots=True)
class Call(Node):
    """A function with its arguments."""

    name: str
    arguments: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Item:
    """A column of the result; all of the table's, but some, without an expression."""

    line: int
    value: Node | None
    name: str | None = None
    without: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Query:
    """A query over one table."""

    items: tuple[Item, ...]
    table: str
    alias: str | None
    where: Node | None
    line: int
    """Of the table."""
