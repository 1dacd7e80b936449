"""Strict decoding of single Avro messages.

It decides which messages are bad, and decodes schemas that pyruhvro does not support. A
reader is built once per schema, as nested functions. The rules are those of the
columnar
path: a number has at most ten bytes and fits its type, a boolean is 0 or 1, an index
    names
an existing branch or symbol, a length lies within the message, and no bytes follow the
last field.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from streamfactory.decoders.avro.schemas import Node, SchemaRefused, same

if TYPE_CHECKING:
    from collections.abc import Callable

    Reader = Callable[[bytes, int], tuple[Any, int]]

_FLOAT: Final = struct.Struct("<f").unpack_from
_DOUBLE: Final = struct.Struct("<d").unpack_from


class Malformed(ValueError):
    """The message does not fit its schema. The text quotes no message content."""


def _long(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    for byte in data[at : at + 10]:
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            value &= 0xFFFFFFFFFFFFFFFF
            return (value >> 1) ^ -(value & 1), at
        shift += 7
    msg = "a number has more than ten bytes, or the message is truncated"
    raise Malformed(msg)


def _int(data: bytes, at: int) -> tuple[int, int]:
    value, at = _long(data, at)
    if not -0x80000000 <= value < 0x80000000:
        msg = "a number does not fit 32 bits"
        raise Malformed(msg)
    return value, at


def _bytes(data: bytes, at: int) -> tuple[bytes, int]:
    length, at = _long(data, at)
    if not 0 <= length <= len(data) - at:
        msg = "a length exceeds the message"
        raise Malformed(msg)
    return data[at : at + length], at + length


def _string(data: bytes, at: int) -> tuple[str, int]:
    value, at = _bytes(data, at)
    try:
        return value.decode(), at
    except UnicodeDecodeError:
        msg = "text is not UTF-8"
        raise Malformed(msg) from None


def _boolean(data: bytes, at: int) -> tuple[bool, int]:
    if data[at : at + 1] not in (b"\0", b"\1"):
        msg = "a boolean is neither 0 nor 1"
        raise Malformed(msg)
    return data[at] == 1, at + 1


def _real(unpack: Any, size: int) -> Reader:
    def read(data: bytes, at: int) -> tuple[float, int]:
        if at + size > len(data):
            msg = "the message is truncated"
            raise Malformed(msg)
        return unpack(data, at)[0], at + size

    return read


_SIMPLE: Final[dict[str, Reader]] = {
    "null": lambda _, at: (None, at),
    "boolean": _boolean,
    "int": _int,
    "long": _long,
    "float": _real(_FLOAT, 4),
    "double": _real(_DOUBLE, 8),
    "bytes": _bytes,
    "string": _string,
}


def reader(writer: Node, wanted: Node | None = None) -> Reader:
    """A function that decodes one value.

    Args:
        writer: Schema of the encoded value.
        wanted: Schema to decode to; by default the writer's.

    Raises:
        SchemaRefused: The two schemas cannot be resolved.
    """
    wanted = writer if wanted is None else wanted
    if wanted.kind in ("option", "union") or writer.kind in ("option", "union"):
        return _unions(writer, wanted)
    if writer.is_decimal and wanted.is_decimal and _form(writer) != _form(wanted):
        return _grown(writer, wanted)
    if writer.kind == wanted.kind and writer.kind in _SIMPLE:
        if writer.arrow != wanted.arrow:
            raise _differ(writer, wanted)
        return _SIMPLE[writer.kind]
    makers = {
        "record": _record,
        "array": _array,
        "map": _map,
        "enum": _enum,
        "fixed": _fixed,
    }
    if writer.kind == wanted.kind:
        return makers[writer.kind](writer, wanted)
    return _promoted(writer, wanted)


def read_all(read: Reader, data: bytes) -> Any:
    """The value of a complete message.

    Raises:
        Malformed: The message does not fit its schema.
    """
    value, at = read(data, 0)
    if at != len(data):
        msg = f"{len(data) - at} bytes follow the last field"
        raise Malformed(msg)
    return value


def _differ(writer: Node, wanted: Node) -> SchemaRefused:
    have, want = (f"{node.kind} {node.name}".strip() for node in (writer, wanted))
    if have == want:
        have, want = str(writer.arrow), str(wanted.arrow)
    return SchemaRefused(f"the writer's type {have} cannot be read as {want}")


_PROMOTIONS: Final = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}


def _promoted(writer: Node, wanted: Node) -> Reader:
    promoted = wanted.kind in _PROMOTIONS.get(writer.kind, ())
    if not promoted or wanted.is_decimal or writer.is_decimal:
        raise _differ(writer, wanted)
    if (writer.kind, wanted.kind) == ("bytes", "string"):
        return _string
    if writer.kind == "string":
        return _bytes
    read = _SIMPLE[writer.kind]
    if wanted.kind == "long":
        return read

    def promote(data: bytes, at: int) -> tuple[float, int]:
        value, at = read(data, at)
        return float(value), at

    return promote


def _form(node: Node) -> tuple[Any, ...]:
    return node.kind, node.size, node.arrow


def _grown(writer: Node, wanted: Node) -> Reader:
    """A reader of a decimal as one with no fewer digits before and behind its point."""
    have, want = writer.arrow, wanted.arrow
    more = want.scale - have.scale
    if more < 0 or want.precision - want.scale < have.precision - have.scale:
        raise _differ(writer, wanted)
    read = _SIMPLE["bytes"] if writer.kind == "bytes" else _fixed(writer, writer)

    def grow(data: bytes, at: int) -> tuple[bytes, int]:
        value, at = read(data, at)
        if not value:
            return value, at  # no number: refused as in the writer's type
        number = int.from_bytes(value, "big", signed=True) * 10**more
        size = wanted.size or number.bit_length() // 8 + 1
        return number.to_bytes(size, "big", signed=True), at

    return grow


def _record(writer: Node, wanted: Node) -> Reader:
    target = {
        other: name
        for name, aliases in zip(wanted.names, wanted.aliases, strict=True)
        for other in (*aliases, name)
    }
    steps: list[tuple[str | None, Reader]] = []
    found: set[str] = set()
    for name, child in zip(writer.names, writer.children, strict=True):
        goal = name if name in wanted.names else target.get(name)
        if goal is None or goal in found:
            steps.append((None, reader(child)))
            continue
        found.add(goal)
        steps.append((goal, reader(child, wanted.children[wanted.names.index(goal)])))
    missing = {}
    for name, default in zip(wanted.names, wanted.defaults, strict=True):
        if name not in found:
            if not default:
                msg = f"the writer's schema lacks field {name!r}, which has no default"
                raise SchemaRefused(msg)
            missing[name] = default[0]

    def read(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        row = dict(missing)
        for name, step in steps:
            value, at = step(data, at)
            if name is not None:
                row[name] = value
        return row, at

    return read


def _blocks(read_item: Reader) -> Reader:
    def read(data: bytes, at: int) -> tuple[list[Any], int]:
        found: list[Any] = []
        while True:
            count, at = _long(data, at)
            if count == 0:
                return found, at
            if count < 0:
                count = -count
                _, at = _long(data, at)
            if count > len(data) - at:  # an item needs at least one byte
                msg = "an array or map has more items than the message has bytes"
                raise Malformed(msg)
            for _ in range(count):
                item, at = read_item(data, at)
                found.append(item)

    return read


def _array(writer: Node, wanted: Node) -> Reader:
    return _blocks(reader(writer.children[0], wanted.children[0]))


def _map(writer: Node, wanted: Node) -> Reader:
    read_value = reader(writer.children[0], wanted.children[0])

    def entry(data: bytes, at: int) -> tuple[tuple[str, Any], int]:
        key, at = _string(data, at)
        value, at = read_value(data, at)
        return (key, value), at

    return _blocks(entry)


def _enum(writer: Node, wanted: Node) -> Reader:
    known = set(wanted.names)
    symbols = [name if name in known else wanted.default for name in writer.names]

    def read(data: bytes, at: int) -> tuple[str, int]:
        index, at = _long(data, at)
        if not 0 <= index < len(symbols):
            msg = "an enum index is out of range"
            raise Malformed(msg)
        symbol = symbols[index]
        if symbol is None:
            msg = "an enum symbol is not in the reader's schema"
            raise Malformed(msg)
        return symbol, at

    return read


def _fixed(writer: Node, wanted: Node) -> Reader:
    size = writer.size
    if (size, writer.arrow) != (wanted.size, wanted.arrow):
        raise _differ(writer, wanted)

    def read(data: bytes, at: int) -> tuple[bytes, int]:
        if at + size > len(data):
            msg = "the message is truncated"
            raise Malformed(msg)
        return data[at : at + size], at + size

    return read


def _unions(writer: Node, wanted: Node) -> Reader:
    if writer.kind not in ("option", "union"):
        return _into(writer, wanted)
    readers: list[Reader | SchemaRefused] = []
    for branch in writer.children:
        try:
            readers.append(_into(branch, wanted))
        except SchemaRefused as error:  # affects only messages that use this branch
            readers.append(error)
    refused = [found for found in readers if isinstance(found, SchemaRefused)]
    if len(refused) == len(readers):
        raise refused[0]

    def read(data: bytes, at: int) -> tuple[Any, int]:
        index, at = _long(data, at)
        if not 0 <= index < len(readers):
            msg = "a union index is out of range"
            raise Malformed(msg)
        found = readers[index]
        if isinstance(found, SchemaRefused):
            msg = f"a value does not fit the reader's schema: {found}"
            raise Malformed(msg)
        return found(data, at)

    return read


def _into(writer: Node, wanted: Node) -> Reader:
    """A reader of one type into a branch of a union, or into a plain type."""
    if wanted.kind not in ("option", "union"):
        return reader(writer, wanted)

    def _named(found: list[int]) -> list[int]:
        return sorted(found, key=lambda at: wanted.children[at].name != writer.name)

    equal = [at for at, branch in enumerate(wanted.children) if same(writer, branch)]
    alike = [
        at for at, branch in enumerate(wanted.children) if branch.kind == writer.kind
    ]
    for at in (*_named(equal), *_named(alike), *range(len(wanted.children))):
        try:
            read = reader(writer, wanted.children[at])
        except SchemaRefused:
            continue
        if wanted.kind == "option" or wanted.children[at].kind == "null":
            return read
        return _member(wanted.names[at], read)
    raise _differ(writer, wanted)


def _member(name: str, read: Reader) -> Reader:
    def wrapped(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        value, at = read(data, at)
        return {name: value}, at

    return wrapped
