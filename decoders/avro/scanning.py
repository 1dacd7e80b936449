"""Which of many messages are bad beyond doubt, found in steps of one field each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from streamfactory.decoders.arrow_scanning import Cursor

if TYPE_CHECKING:
    import pyarrow as pa

    from streamfactory.decoders.avro.schemas import Node


def suspects(values: pa.Array, node: Node) -> np.ndarray:
    """The messages that are bad, as far as can be told before the first list.

    Args:
        values: binary.
        node: The record that they were written as.
    """
    cursor = Cursor(values)
    rows, whole = _walk(cursor, node, cursor.all())
    if whole:
        cursor.finish(rows)
    return np.flatnonzero(cursor.bad)


def _walk(cursor: Cursor, node: Node, rows: np.ndarray) -> tuple[np.ndarray, bool]:
    """Go behind a value: the rows that have one, and whether all could be passed."""
    kind = node.kind
    if kind == "long":
        rows = cursor.pass_number(rows)
    elif kind in ("int", "enum"):
        numbers, rows = cursor.signed(rows)
        if kind == "int":
            rows = cursor.refuse(rows, np.abs(numbers + 0.5) < 1 << 31)
        if kind == "enum":
            right = (numbers >= 0) & (numbers < len(node.names))
            rows = cursor.refuse(rows, right)
    elif kind in ("bytes", "string"):
        lengths, rows = cursor.signed(rows)
        rows = cursor.skip(rows, lengths)
    elif kind in ("float", "double", "fixed"):
        rows = cursor.skip(rows, {"float": 4, "double": 8}.get(kind, node.size))
    elif kind == "boolean":
        found, rows = cursor.byte(rows)
        rows = cursor.refuse(rows, found <= 1)
    elif kind == "record":
        for child in node.children:
            rows, whole = _walk(cursor, child, rows)
            if not whole:
                return rows, False
    elif kind in ("option", "union"):
        return _branches(cursor, node, rows)
    return rows, kind not in ("array", "map")


def _branches(cursor: Cursor, node: Node, rows: np.ndarray) -> tuple[np.ndarray, bool]:
    index, rows = cursor.signed(rows)
    right = (index >= 0) & (index < len(node.children))
    rows, index = cursor.refuse(rows, right), index[right]
    kept, whole = [], True
    for at, child in enumerate(node.children):
        here, passed = _walk(cursor, child, rows[index == at])
        kept.append(here)
        whole = whole and passed
    return np.sort(np.concatenate(kept)), whole
