"""What commands answer, and the means to write it as text."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


class Result(ABC):
    """The answer of a command: a dataclass, whose fields are the keys of ``--json``."""

    __slots__ = ()

    @abstractmethod
    def lines(self) -> Iterable[str]:
        """The answer as text."""

    def plain(self) -> Any:
        """The answer as plain values."""
        return asdict(self)  # type: ignore[call-overload]


def printable(text: str) -> str:
    """One line of text: what would break it, or a terminal obey, is shown escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def table(rows: Sequence[Sequence[str]], indent: str = "") -> Iterator[str]:
    """Columns of their widest cell; the last one as it is, on one line."""
    rows = [[printable(cell) for cell in row] for row in rows]
    columns = max((len(row) for row in rows), default=1) - 1
    widths = [max(len(row[i]) for row in rows if len(row) > i) for i in range(columns)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        cells += row[columns:]
        yield (indent + "  ".join(cells)).rstrip()


def count(number: int, noun: str) -> str:
    """``1 error``, ``2 errors``, ``2 losses``."""
    ending = "es" if noun.endswith("s") else "s"
    return f"{number} {noun}{ending * (number != 1)}"
