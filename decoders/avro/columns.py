"""Conversion between encoded values and columns of the declared types."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from streamfactory.decoders.columns.buffers import is_ascii
from streamfactory.decoders.columns.decimals import decimals

if TYPE_CHECKING:
    from streamfactory.decoders.avro.schemas import Node


def to_arrow(values: pa.Array, node: Node) -> pa.Array:
    """Convert values of the type `wire.raw` to the Arrow type of the schema.

    Raises:
        pyarrow.ArrowInvalid: A number does not fit its type, or text is not UTF-8.
    """
    kind = node.kind
    if kind == "option":
        return to_arrow(values, node.children[1 - node.null_at])
    if kind in ("record", "union"):
        return _struct(values, node)
    if kind == "array":
        items = to_arrow(values.values, node.children[0])
        return pa.ListArray.from_arrays(
            values.offsets, items, type=node.arrow, mask=_mask(values)
        )
    if kind == "map":
        items = to_arrow(values.items, node.children[0])
        _check_text(values.keys)
        return pa.MapArray.from_arrays(
            values.offsets, values.keys, items, type=node.arrow, mask=_mask(values)
        )
    if node.is_decimal:
        return decimals(values, node.arrow)
    if kind == "int":
        values = values.cast(pa.int32())
    if kind == "bytes":
        return values.view(pa.binary())
    if kind in ("string", "enum"):
        _check_text(values)
        return values
    if values.type == node.arrow:
        return values
    checked = values.view(node.arrow)
    if pa.types.is_time(node.arrow):
        checked.validate(full=True)
    return checked


def _check_text(values: pa.Array) -> None:
    if not is_ascii(values):
        values.validate(full=True)


def _struct(values: pa.Array, node: Node) -> pa.Array:
    if pa.types.is_null(node.arrow):
        return values
    parts = [
        child
        for child in node.children
        if node.kind == "record" or child.kind != "null"
    ]
    columns = [to_arrow(values.field(at), child) for at, child in enumerate(parts)]
    fields = [node.arrow.field(at) for at in range(node.arrow.num_fields)]
    if not fields:
        return pa.array([{}] * len(values), node.arrow, mask=_mask(values))
    return pa.StructArray.from_arrays(columns, fields=fields, mask=_mask(values))


def _mask(values: pa.Array) -> pa.Array | None:
    return values.is_null() if values.null_count else None


def to_wire(
    values: pa.Array, node: Node, bytes_type: pa.DataType | None = None
) -> pa.Array:
    """Convert columns to encoded values: the inverse of `to_arrow`.

    Args:
        values: Of the Arrow type of the node.
        node: The schema.
        bytes_type: Type in which bytes are passed on; binary by default.

    Raises:
        pyarrow.ArrowInvalid: A decimal does not fit its bytes.
    """
    kind = node.kind
    if kind == "option":
        return to_wire(values, node.children[1 - node.null_at], bytes_type)
    if kind in ("record", "union") and not pa.types.is_null(node.arrow):
        used = [c for c in node.children if kind == "record" or c.kind != "null"]
        parts = [
            to_wire(part, child, bytes_type)
            for part, child in zip(values.flatten(), used, strict=True)
        ]
        fields = [
            pa.field(
                node.arrow.field(at).name,
                part.type,
                nullable=child.nullable or kind == "union",
            )
            for at, (part, child) in enumerate(zip(parts, used, strict=True))
        ]
        if not fields:
            return values
        return pa.StructArray.from_arrays(parts, fields=fields, mask=_mask(values))
    if kind in ("array", "map"):
        return _begin_lists(values, node, bytes_type)
    if node.is_decimal:
        values = _big_endian(values, node.size)
    if kind == "bytes":
        return values.view(bytes_type or pa.binary())
    if kind == "int":
        return values.view(pa.int32()).cast(pa.int64())
    return values.view(pa.int64()) if kind == "long" else values


def _begin_lists(
    values: pa.Array, node: Node, bytes_type: pa.DataType | None
) -> pa.Array:
    child = node.children[0]
    if values.offset:  # a slice: make its offsets start at zero
        values = values.take(pa.arange(0, len(values)))
    items = values.values if node.kind == "array" else values.items
    items = to_wire(items, child, bytes_type)
    field = pa.field("item", items.type, nullable=child.nullable)
    if node.kind == "array":
        kind = pa.list_(field)
        return pa.ListArray.from_arrays(
            values.offsets, items, type=kind, mask=_mask(values)
        )
    kind = pa.map_(pa.string(), field.with_name("value"))
    return pa.MapArray.from_arrays(
        values.offsets, values.keys, items, type=kind, mask=_mask(values)
    )


def _big_endian(values: pa.Array, size: int) -> pa.Array:
    """Decimals as bytes: the minimum number, or the size of a fixed."""
    width, count = values.type.byte_width, len(values)
    data = np.frombuffer(values.buffers()[1], np.uint8)[values.offset * width :]
    data = data[: count * width].reshape(count, width)[:, ::-1]
    valid = np.asarray(values.is_valid())
    data = np.where(valid[:, None], data, 0)
    negative = data[:, :1] >= 0x80
    sign = np.where(negative, 0xFF, 0)
    spare = (data[:, :-1] == sign) & ((data[:, 1:] >= 0x80) == negative)
    leading = np.cumprod(spare, axis=1).sum(axis=1)
    if size:
        if (width - leading > size).any():
            msg = f"a decimal does not fit {size} bytes"
            raise pa.ArrowInvalid(msg)
        padding = np.repeat(sign.astype(np.uint8), max(0, size - width), axis=1)
        fitted = np.concatenate([padding, data[:, max(0, width - size) :]], axis=1)
        made = pa.py_buffer(np.ascontiguousarray(fitted, np.uint8).tobytes())
        mask = pa.array(valid).buffers()[1] if values.null_count else None
        return pa.Array.from_buffers(pa.binary(size), count, [mask, made])
    kept = np.arange(width) >= leading[:, None]
    kept &= valid[:, None]
    places = np.concatenate([[0], np.cumsum(kept.sum(axis=1))]).astype(np.int32)
    mask = pa.array(valid).buffers()[1] if values.null_count else None
    buffers = [mask, pa.py_buffer(places), pa.py_buffer(data[kept].astype(np.uint8))]
    return pa.Array.from_buffers(pa.binary(), count, buffers)
