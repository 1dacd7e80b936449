"""What commands answer, and the means to write it as text."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamfactory.spi import Loss, Partition, Position, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


class Result(ABC):
    """The answer of a command: a dataclass, whose fields are the keys of ``--json``.

    Results of the library are fields as they are: `plain` knows how to show them.
    """

    __slots__ = ()

    @abstractmethod
    def lines(self) -> Iterable[str]:
        """The answer as text."""

    def plain(self) -> Any:
        """The answer as plain values."""
        return plain(self)


def plain(value: Any) -> Any:
    """A result as plain values: what ``--json`` prints.

    A partition in a field becomes ``topic`` and ``partition``, a verdict ``guarantee``
    and ``reasons``; what the library calls ``done`` stands among the other fields.
    """
    if isinstance(value, Loss):
        return value.to_dict()
    if isinstance(value, Position):
        return json.loads(value.to_json())
    if isinstance(value, Path):
        return str(value)
    if is_dataclass(value):
        found: dict[str, Any] = {}
        for field in fields(value):
            found |= _members(field.name, getattr(value, field.name))
        return found
    if isinstance(value, Mapping):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return value


def _members(name: str, value: Any) -> dict[str, Any]:
    if isinstance(value, Partition):
        return {"topic": value.topic, "partition": value.id}
    if isinstance(value, Verdict):
        return {"guarantee": str(value.guarantee), "reasons": list(value.reasons)}
    if name == "done":
        found: dict[str, Any] = plain(value)
        return found
    return {name: plain(value)}


def lost_lines(losses: Iterable[Loss]) -> Iterator[str]:
    """Losses as text."""
    for loss in losses:
        until = "?" if loss.end is None else loss.end
        yield f"lost: {loss.partition}, {loss.start} to {until} ({loss.cause})"


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
