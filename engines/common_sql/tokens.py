"""Tokens of a query."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from streamfactory.spi import MisuseError

REMEDY: Final = (
    "use what both engines answer alike (docs/pipelines-without-java.md), or remove "
    'engine = "datafusion" to run it on Spark'
)
_TOKEN: Final = re.compile(
    r"""
      (?P<space>\s+|--[^\n]*)
    | (?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?:[A-Za-z]+)?)(?!\w)
    | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<quoted>`(?:[^`])+`)
    | (?P<text>'[^'\\]*'(?!')|"[^"\\]*"(?!"))
    | (?P<sign><=>|<>|!=|<=|>=|==|\|\||/(?!\*)|[-+*%=<>(),.])
    """,
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Token:
    """A part of a query's text."""

    kind: str
    """``number``, ``word``, ``quoted``, ``text``, ``sign`` or ``end``."""
    text: str
    """As written; of quoted names and texts what is between the quotes."""
    line: int

    @property
    def shown(self) -> str:
        """For messages."""
        return "the end" if self.kind == "end" else repr(self.text)


def refused(what: str, line: int, remedy: str = REMEDY) -> MisuseError:
    """The error of a query that is not in the common part."""
    return MisuseError(f"line {line} of the SQL: {what}", remedy=remedy)


def tokens(sql: str) -> list[Token]:
    """Return the tokens of a query, with one of kind ``end`` as the last.

    Raises:
        MisuseError: misuse; a part of it is not known.
    """
    found, at, line = list[Token](), 0, 1
    while at < len(sql):
        match = _TOKEN.match(sql, at)
        if match is None:
            raise refused(_unknown(sql, at), line)
        kind, text = str(match.lastgroup), match[0]
        if kind != "space":
            inner = text[1:-1] if kind in ("quoted", "text") else text
            found.append(Token(kind, inner, line))
        line += text.count("\n")
        at = match.end()
    return [*found, Token("end", "", line)]


def _unknown(sql: str, at: int) -> str:
    if sql[at] in "'\"":
        return "a text with a backslash or doubled quotes, or one that does not end"
    if sql.startswith("/*", at):
        return "a comment between /* and */: use --"
    return f"{sql[at]!r} is not supported"
