"""Vectorized search for bad messages, one field at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from streamfactory.decoders.columns.buffers import lengths_of
from streamfactory.decoders.scanning import Cursor

if TYPE_CHECKING:
    import pyarrow as pa

    from streamfactory.decoders.avro.schemas import Node
    from streamfactory.decoders.scanning import Rows


def suspects(values: pa.Array, node: Node, fields: int) -> np.ndarray:
    """The messages that are certainly bad, judged by the fields before the first list.

    Args:
        values: binary.
        node: The record schema that they were written with.
        fields: Number of leading fields to check.
    """
    cursor = Cursor(values)
    cursor.refuse(cursor.ALL, lengths_of(values) < node.least)
    checked = node.children[:fields]
    whole = all(_walk(cursor, child, cursor.ALL) for child in checked)
    if whole and len(checked) == len(node.children):
        cursor.finish(cursor.ALL)
    return np.flatnonzero(cursor.bad)


def _walk(cursor: Cursor, node: Node, rows: Rows) -> bool:
    """Skip one value of each row; False if it contains an array or map."""
    kind = node.kind
    if kind == "long":
        cursor.pass_number(rows)
    elif kind == "int":
        numbers = cursor.signed(rows)
        cursor.refuse(rows, (numbers < -(1 << 31)) | (numbers >= 1 << 31))
    elif kind == "enum":
        numbers = cursor.signed(rows)
        cursor.refuse(rows, (numbers < 0) | (numbers >= len(node.names)))
    elif kind in ("bytes", "string"):
        cursor.skip(rows, cursor.signed(rows))
    elif kind in ("float", "double", "fixed"):
        cursor.skip(rows, {"float": 4, "double": 8}.get(kind, node.size))
    elif kind == "boolean":
        cursor.refuse(rows, cursor.byte(rows) > 1)
    elif kind == "record":
        return all(_walk(cursor, child, rows) for child in node.children)
    elif kind in ("option", "union"):
        return _branches(cursor, node, rows)
    return kind not in ("array", "map")


def _branches(cursor: Cursor, node: Node, rows: Rows) -> bool:
    index = cursor.signed(rows)
    cursor.refuse(rows, (index < 0) | (index >= len(node.children)))
    whole = [
        _walk(cursor, child, cursor.those(rows, index == at))
        for at, child in enumerate(node.children)
    ]
    return all(whole)
