"""Encoded values: their Arrow types, and an equivalent schema for pyruhvro."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streamfactory.decoders.avro.schemas import PRIMITIVES

if TYPE_CHECKING:
    from streamfactory.decoders.avro.schemas import Node


def raw(node: Node) -> pa.DataType:
    """The Arrow type of encoded values, before `columns.to_arrow`."""
    kind = node.kind
    if kind == "option":
        return raw(node.children[1 - node.null_at])
    if kind == "union":
        members = zip(node.children, node.names, strict=True)
        fields = [pa.field(n, raw(b)) for b, n in members if b.kind != "null"]
        return pa.struct(fields) if fields else pa.null()
    if kind == "record":
        pairs = zip(node.names, node.children, strict=True)
        return pa.struct([pa.field(name, raw(child)) for name, child in pairs])
    if kind == "array":
        return pa.list_(raw(node.children[0]))
    if kind == "map":
        return pa.map_(pa.string(), raw(node.children[0]))
    if kind == "int":
        return pa.int64()
    if kind == "fixed":
        return pa.binary(node.size)
    return pa.string() if kind == "enum" else PRIMITIVES[kind]


def wire(node: Node) -> Any:
    """A schema with the same encoding, of types that pyruhvro decodes without loss.

    pyruhvro decodes an int as a long and does not report overflow, so it is given a
    long. Bytes and text have the same encoding and pyruhvro validates neither. None if
    there is no such schema.
    """
    return _Wire().of(node)


class _Wire:
    def __init__(self) -> None:
        self._names = 0

    def of(self, node: Node) -> Any:
        kind = node.kind
        if kind in ("boolean", "long", "float", "double", "string"):
            return kind
        if kind in ("int", "bytes"):
            return {"int": "long", "bytes": "string"}[kind]
        if kind == "enum":
            return {"type": "enum", "name": self._name(), "symbols": [*node.names]}
        if kind not in ("array", "map", "option", "record") or not node.children:
            return None
        parts = [
            "null" if child.kind == "null" and kind == "option" else self.of(child)
            for child in node.children
        ]
        if None in parts:
            return None
        if kind == "array":
            return {"type": "array", "items": parts[0]}
        if kind == "map":
            return {"type": "map", "values": parts[0]}
        if kind == "option":
            return parts
        fields = [
            {"name": name, "type": part}
            for name, part in zip(node.names, parts, strict=True)
        ]
        return {"type": "record", "name": self._name(), "fields": fields}

    def _name(self) -> str:
        self._names += 1
        return f"n{self._names}"
