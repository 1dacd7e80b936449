"""Parts of the text of results."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from streamfactory.wiring.core.shown import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from streamfactory.spi import Loss, Position, Skipped


def offsets_text(position: Position) -> str:
    """The offsets of a position, as options of starts take them."""
    return json.dumps(json.loads(position.to_json())["offsets"], sort_keys=True)


def number(value: int | None, unknown: str = "unknown") -> str:
    """A number as text."""
    return unknown if value is None else str(value)


def lost_lines(losses: Iterable[Loss]) -> Iterator[str]:
    """Losses as text."""
    for loss in losses:
        until = "?" if loss.end is None else loss.end
        yield f"lost: {loss.partition}, {loss.start} to {until} ({loss.cause})"


def skipped_lines(ranges: Iterable[Skipped]) -> Iterator[str]:
    """Skipped ranges as text."""
    for one in ranges:
        yield f"skipped: {one.partition}, {one.start} to {one.end}"


def table(rows: Sequence[Sequence[str]], indent: str = "") -> Iterator[str]:
    """Aligned columns; the last one is not padded."""
    rows = [[printable(cell) for cell in row] for row in rows]
    columns = max((len(row) for row in rows), default=1) - 1
    widths = [max(len(row[i]) for row in rows if len(row) > i) for i in range(columns)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        cells += row[columns:]
        yield (indent + "  ".join(cells)).rstrip()


def count(number: int, noun: str) -> str:
    """``1 error``, ``2 errors``, ``2 losses``."""
    if number == 1:
        return f"{number} {noun}"
    return f"{number} {noun}{'es' if noun.endswith(('s', 'tch')) else 's'}"
