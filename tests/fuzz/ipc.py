"""Arrow IPC messages taken apart and put together again, with whatever was changed.

This is a parser of its own, not that of the project: the fuzz suite places its damage
with it, in fields of headers and in the elements of buffers that point elsewhere.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator

END: Final = b"\xff\xff\xff\xff\0\0\0\0"
MAGIC: Final = b"ARROW1"
SCHEMA, DICTIONARY, ROWS = 1, 2, 3
_CODECS: Final = {0: "lz4", 1: "zstd"}
_ALIGNED: Final = 8


@dataclass(slots=True)
class Message:
    """One message: its header, and the buffers of its body."""

    head: bytearray
    kind: int
    buffers: list[bytearray] = field(default_factory=list)
    """As they are used: unpacked."""
    places: list[int] = field(default_factory=list)
    """Where the header has the offset and the length of each buffer."""
    nodes: list[int] = field(default_factory=list)
    """Where the header has the length and the null count of each column."""
    length: int | None = None
    """Where the header has the number of rows."""
    body_length: int | None = None
    """Where the header has the length of the body."""
    codec: str | None = None
    patched: bool = False
    """Whether its header was changed: it and the body are left as they are."""
    body: bytes = b""
    """As it came."""

    def assemble(self) -> bytes:
        """The message; its body is made of its buffers."""
        body = bytearray()
        if self.patched:
            body += self.body
        else:
            for place, buffer in zip(self.places, self.buffers, strict=True):
                packed = _packed(bytes(buffer), self.codec)
                struct.pack_into("<qq", self.head, place, len(body), len(packed))
                body += packed + bytes(-len(packed) % _ALIGNED)
            if self.body_length is not None:
                struct.pack_into("<q", self.head, self.body_length, len(body))
        return struct.pack("<ii", -1, len(self.head)) + bytes(self.head) + bytes(body)


def messages(stream: bytes) -> list[Message]:
    """The messages of a sound stream, without its end."""
    return list(_messages(stream))


def _messages(stream: bytes) -> Iterator[Message]:
    at = 0
    while at < len(stream):
        marker, size = struct.unpack_from("<ii", stream, at)
        assert marker == -1, "not a stream"
        if not size:
            return
        head = bytearray(stream[at + 8 : at + 8 + size])
        at += 8 + size
        message = _header(head)
        length = 0
        if message.body_length is not None:
            (length,) = struct.unpack_from("<q", head, message.body_length)
        message.body = stream[at : at + length]
        at += length
        for place in message.places:
            begin, count = struct.unpack_from("<qq", head, place)
            raw = message.body[begin : begin + count]
            message.buffers.append(bytearray(_unpacked(raw, message.codec)))
        yield message


def _header(head: bytearray) -> Message:
    root = struct.unpack_from("<I", head)[0]
    kind = head[_slot(head, root, 1) or 0]
    found = Message(head, kind, body_length=_slot(head, root, 3))
    at = _table(head, root, 2)
    if kind == DICTIONARY:
        at = _table(head, at, 1)
    elif kind != ROWS:
        return found
    found.length = _slot(head, at, 0)
    found.nodes = _vector(head, at, 1, 16)
    found.places = _vector(head, at, 2, 16)
    compression = _table(head, at, 3)
    if compression:
        codec = _slot(head, compression, 0)
        found.codec = _CODECS[0 if codec is None else head[codec]]
    return found


def _slot(head: bytearray, table: int, number: int) -> int | None:
    """Where a field of a table is; None where it has its default."""
    vtable = table - struct.unpack_from("<i", head, table)[0]
    if 4 + 2 * number >= struct.unpack_from("<H", head, vtable)[0]:
        return None
    offset = struct.unpack_from("<H", head, vtable + 4 + 2 * number)[0]
    return table + offset if offset else None


def _table(head: bytearray, table: int, number: int) -> int:
    """The table that a field refers to; 0 where there is none."""
    at = _slot(head, table, number)
    return 0 if at is None else at + struct.unpack_from("<I", head, at)[0]


def _vector(head: bytearray, table: int, number: int, width: int) -> list[int]:
    at = _table(head, table, number)
    if not at:
        return []
    count = struct.unpack_from("<I", head, at)[0]
    return [at + 4 + width * index for index in range(count)]


def _unpacked(raw: bytes, codec: str | None) -> bytes:
    if codec is None or not raw:
        return raw
    (size,) = struct.unpack_from("<q", raw)
    if size == -1:
        return raw[8:]
    found: bytes = pa.decompress(
        raw[8:], decompressed_size=size, codec=codec, asbytes=True
    )
    return found


def _packed(raw: bytes, codec: str | None) -> bytes:
    if codec is None or not raw:
        return raw
    packed: bytes = pa.compress(raw, codec=codec, asbytes=True)
    return struct.pack("<q", len(raw)) + packed


# --- what each buffer is ------------------------------------------------------------


def roles(fields: Any) -> list[tuple[str, int]]:
    """What each buffer of a batch is, and the width of its elements; views last as 0.

    Args:
        fields: Of its schema; or one, of a dictionary's values.
    """
    return [role for one in fields for role in _roles(one.type)]


def _roles(kind: pa.DataType) -> list[tuple[str, int]]:
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return _roles(kind.storage_type)
    children = [kind.field(at).type for at in range(kind.num_fields)]
    inner = [role for child in children for role in _roles(child)]
    valid = [("validity", 1)]
    if types.is_null(kind):
        return []
    if types.is_run_end_encoded(kind):
        ends, values = kind.run_end_type, kind.value_type
        return [("validity", 1), ("run ends", ends.bit_width // 8), *_roles(values)]
    if types.is_union(kind):
        places = [("offsets", 4)] if kind.mode == "dense" else []
        return [("types", 1), *places, *inner]
    if types.is_dictionary(kind):
        return [*valid, ("indices", kind.index_type.bit_width // 8)]
    if types.is_struct(kind) or types.is_fixed_size_list(kind):
        return valid + inner
    if types.is_list_view(kind) or types.is_large_list_view(kind):
        width = 8 if types.is_large_list_view(kind) else 4
        return [*valid, ("offsets", width), ("sizes", width), *inner]
    if types.is_list(kind) or types.is_map(kind) or types.is_large_list(kind):
        return [*valid, ("offsets", 8 if types.is_large_list(kind) else 4), *inner]
    if types.is_string_view(kind) or types.is_binary_view(kind):
        return [*valid, ("views", 4), ("data", 1)]
    if types.is_large_string(kind) or types.is_large_binary(kind):
        return [*valid, ("offsets", 8), ("data", 1)]
    if types.is_string(kind) or types.is_binary(kind):
        return [*valid, ("offsets", 4), ("data", 1)]
    width = 1 if types.is_boolean(kind) else max(1, kind.bit_width // 8)
    return [*valid, ("values", min(width, 8))]
