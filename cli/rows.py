"""Rows on a screen: a table for people, JSON lines for programs."""

from __future__ import annotations

import base64
import json
import math
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_WIDEST: Final = 60
"""Characters of one cell."""


def json_lines(rows: pa.RecordBatch) -> Iterator[str]:
    """One JSON object a row; binary values in base64, times in ISO 8601."""
    for row in _readable(rows).to_pylist():
        try:
            yield json.dumps(
                row, ensure_ascii=False, allow_nan=False, default=_json_value
            )
        except ValueError:  # JSON has no word for what is no number
            yield json.dumps(_finite(row), ensure_ascii=False, default=_json_value)


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
            [_cell(value) for value in column.to_pylist()]
            for column in _readable(rows).columns
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


def _readable(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Times as text: Python's own have no nanoseconds."""
    columns = [
        pc.replace_substring(column.cast(pa.string()), " ", "T")
        if pa.types.is_timestamp(column.type)
        else column
        for column in rows.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=rows.schema.names)


def _json_value(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return value


def _cell(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bytes):
        text = value.decode(errors="backslashreplace")
    elif isinstance(value, dict | list):
        text = json.dumps(_finite(value), ensure_ascii=False, default=_json_value)
    else:
        text = value if isinstance(value, str) else str(value)
    if not text.isprintable():
        # What a terminal would obey is shown instead.
        text = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 3]}..."
