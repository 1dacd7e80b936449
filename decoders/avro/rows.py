"""Row-by-row encoding, for schemas that pyruhvro does not support."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from streamfactory.decoders.isolation import varint

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamfactory.decoders.avro.schemas import Node

    Writer = Callable[[Any], bytes]


def _long(value: int) -> bytes:
    return varint(((value << 1) ^ (value >> 63)) & 0xFFFFFFFFFFFFFFFF)


def _bytes(value: bytes) -> bytes:
    return _long(len(value)) + value


_SIMPLE: Final[dict[str, Writer]] = {
    "null": lambda _: b"",
    "boolean": lambda value: b"\1" if value else b"\0",
    "int": _long,
    "long": _long,
    "float": struct.Struct("<f").pack,
    "double": struct.Struct("<d").pack,
    "bytes": _bytes,
    "string": lambda value: _bytes(value.encode()),
    "fixed": bytes,
}


def writer(node: Node) -> Writer:
    """A function that encodes one value, as `columns.to_wire` returns it."""
    kind = node.kind
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    if kind == "enum":
        places = {symbol: _long(at) for at, symbol in enumerate(node.names)}
        return lambda value: places[value]
    parts = [writer(child) for child in node.children]
    if kind == "record":
        pairs = list(zip(node.names, parts, strict=True))
        return lambda row: b"".join(write(row[name]) for name, write in pairs)
    if kind == "option":
        null, other = _long(node.null_at), _long(1 - node.null_at)
        write = parts[1 - node.null_at]
        return lambda value: null if value is None else other + write(value)
    if kind == "union":
        return _union(node, parts)
    return _blocks(parts[0], is_map=kind == "map")


def _union(node: Node, parts: list[Writer]) -> Writer:
    members = [
        (name, _long(at), part)
        for at, (name, part) in enumerate(zip(node.names, parts, strict=True))
    ]

    def write(value: dict[str, Any] | None) -> bytes:
        for name, head, part in members:
            if value is not None and value.get(name) is not None:
                return head + part(value[name])
        if node.null_at < 0:
            msg = "a union without a null branch has a null value"
            raise ValueError(msg)
        return _long(node.null_at)

    return write


def _blocks(item: Writer, *, is_map: bool) -> Writer:
    def write(values: list[Any]) -> bytes:
        if not values:
            return b"\0"
        parts = (
            [_bytes(k.encode()) + item(v) for k, v in values]
            if is_map
            else map(item, values)
        )
        return _long(len(values)) + b"".join(parts) + b"\0"

    return write
