"""Rows of untrusted streams as short texts for tables: decoded, else hexadecimal."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from streamfactory.engines.search.columns import octets_text
from streamfactory.wiring.core.shown import printable
from streamfactory.wiring.core.values import plain_values

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_CHARACTERS: Final = 400
"""Of one value."""
MOST_COLUMNS: Final = 60
_LARGE: Final = 1 << 16
"""Bytes of a value of which only the beginning is looked at."""


def cell_rows(rows: pa.RecordBatch, columns: Sequence[str]) -> list[list[str]]:
    """The values of some columns as text, row by row.

    Control characters, direction marks and bytes that are not UTF-8 are escaped; long
    values are cut. A value that cannot be converted is shown by its type.

    Args:
        rows: Of any schema; few, because each value is converted separately.
        columns: The names, in order.
    """
    arrays = [rows.column(name) for name in columns]
    return [
        [_cell(array.slice(index, 1)) for array in arrays]
        for index in range(rows.num_rows)
    ]


def _cell(value: pa.Array) -> str:
    size = value.nbytes
    if size > _LARGE:
        return _large(value, size)
    try:
        plain: Any = plain_values(value, octets_text)[0]
    except Exception:  # noqa: BLE001 - whatever a foreign value breaks, the page stands
        return f"<{value.type}>"
    return "null" if plain is None else _shown(plain, None)


def _large(value: pa.Array, size: int) -> str:
    """A value of which the page shows the beginning only."""
    scalar = value[0]
    if isinstance(scalar, pa.BinaryScalar | pa.LargeBinaryScalar | pa.StringScalar):
        buffer = scalar.as_buffer()
        if buffer is None:
            return "null"
        begin = buffer.slice(0, min(buffer.size, MOST_CHARACTERS)).to_pybytes()
        text = begin.decode(errors="replace")
        if text.rstrip("\ufffd").count("\ufffd"):
            text = "0x" + begin.hex()
        return _shown(text, f"{buffer.size} bytes")
    return f"<{value.type}, {size} bytes>"


def _shown(plain: Any, whole: str | None) -> str:
    text = plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)
    if whole is None and len(text) > MOST_CHARACTERS:
        whole = f"{len(text)} characters"
    cut = printable(text[:MOST_CHARACTERS])
    return cut if whole is None else f"{cut} … ({whole})"
