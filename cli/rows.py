"""Rows on a screen: a table for people."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from streamfactory.wiring.core.shown import printable
from streamfactory.wiring.core.values import (
    decode_leniently,
    plain_values,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

_WIDEST: Final = 60
"""Characters of one cell."""


class Table:
    """Columns that stay where they are, batch after batch, and widen where they must.

    Args:
        names: Of the columns.
    """

    def __init__(self, names: list[str]) -> None:
        self._names = [_cell(name) for name in names]
        self._widths = [len(name) for name in self._names]
        self._begun = False

    def lines(self, rows: pa.RecordBatch) -> Iterator[str]:
        """The lines of a batch; of the first one, the names before them."""
        columns = [
            [_cell(value) for value in plain_values(column, decode_leniently)]
            for column in rows.columns
        ]
        for index, cells in enumerate(columns):
            widest = max((len(cell) for cell in cells), default=0)
            self._widths[index] = max(self._widths[index], widest)
        if not self._begun:
            self._begun = True
            yield self._line(self._names)
        for row in zip(*columns, strict=True):
            yield self._line(row)

    def _line(self, cells: Sequence[str]) -> str:
        padded = zip(cells, self._widths, strict=True)
        return "  ".join(cell.ljust(width) for cell, width in padded).rstrip()


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = printable(text)
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 3]}..."
