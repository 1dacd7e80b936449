"""Which of many messages are likely to be bad, found in steps of one field each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from streamfactory.decoders.scanning import Cursor

if TYPE_CHECKING:
    import pyarrow as pa

    from streamfactory.decoders.scanning import Rows

_NUMBER, _EIGHT, _LENGTH, _FOUR = _KINDS = (0, 1, 2, 5)
_KNOWN: Final = np.isin(np.arange(8), _KINDS)


def suspects(values: pa.Array, fields: int) -> np.ndarray:
    """The messages that look bad, as far as can be told without their fields' types.

    Args:
        values: binary.
        fields: How many fields of each are looked at.
    """
    cursor = Cursor(values)
    rows: Rows = cursor.ALL
    for _ in range(fields):
        rows = cursor.more(rows)
        if not (len(values) if isinstance(rows, slice) else len(rows)):
            break
        tags = cursor.number(rows)
        kinds = (tags & np.uint64(7)).astype(np.int64)
        # A group is hardly ever one: text that is no message begins like it.
        cursor.refuse(rows, ~_KNOWN[kinds] | (tags < np.uint64(8)))
        for kind in _KINDS:
            chosen = kinds == kind
            if chosen.any():
                _pass(cursor, kind, cursor.those(rows, chosen))
    return np.flatnonzero(cursor.bad)


def _pass(cursor: Cursor, kind: int, rows: Rows) -> None:
    if kind == _NUMBER:
        cursor.pass_number(rows)
    elif kind == _LENGTH:
        # What is too large for a signed number is negative, and refused.
        cursor.skip(rows, cursor.number(rows).astype(np.int64))
    else:
        cursor.skip(rows, 8 if kind == _EIGHT else 4)
