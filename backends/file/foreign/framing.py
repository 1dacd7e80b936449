"""Where the messages of Arrow IPC lie in a file, without a look at their bodies.

A message is a prefix with the length of its metadata, the metadata (a flatbuffer), and
a body whose length the metadata tells. Every number here comes from whoever wrote the
file: it is checked against the file before it is used.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    Peek = Callable[[int, int], bytes]
    """Answers bytes at an offset, fewer at the end of the file."""

    Bytes = bytes | bytearray

MAGIC: Final = b"ARROW1"
SCHEMA: Final = 1
DICTIONARY: Final = 2
ROWS: Final = 3
END: Final = 0
"""Kinds of a frame; the first three are Arrow's numbers."""

_CONTINUATION: Final = 0xFFFFFFFF
_GLANCE: Final = 1024
"""Bytes that hold the metadata of most messages."""
_LONGEST_METADATA: Final = 256 * 1024**2
_TAIL: Final = struct.Struct("<i6s")
_U16: Final = struct.Struct("<H").unpack_from
_I32: Final = struct.Struct("<i").unpack_from
_U32: Final = struct.Struct("<I").unpack_from
_I64: Final = struct.Struct("<q").unpack_from
_FIELDS: Final = 8
"""More than any table that is looked at here has."""
_SLOTS: Final = struct.Struct(f"<{_FIELDS}H").unpack_from
_NO_FIELDS: Final = (0,) * _FIELDS


class Malformed(Exception):
    """Bytes that are no Arrow IPC: says which, in words that follow a file's name."""


class _Unsound(Malformed):
    """A flatbuffer that cannot be followed."""


class Frame(NamedTuple):
    """One message: where it lies and what it says of itself."""

    kind: int
    offset: int
    head: int
    """Bytes of prefix and metadata; the body follows."""
    body: int = 0
    rows: int = 0
    dictionary: int = 0
    """Id, of a dictionary."""
    delta: bool = False
    compressed: bool = False

    @property
    def size(self) -> int:
        """Bytes of the whole message."""
        return self.head + self.body

    @property
    def end(self) -> int:
        """Where the next message begins."""
        return self.offset + self.head + self.body


def read_frame(
    peek: Peek, offset: int, size: int, *, longest: int, legacy: bool
) -> Frame | None:
    """The message at ``offset``; None while it is not there as a whole.

    Args:
        peek: Reads the file.
        offset: Where the message begins.
        size: Of the file.
        longest: Bytes that a message may have.
        legacy: Whether the stream has prefixes of four bytes, as before Arrow 0.15.
            Elsewhere four zeros are no end: a file system may leave them behind.

    Raises:
        Malformed: It is no message.
    """
    data = peek(offset, min(_GLANCE, size - offset))
    if len(data) < 4:
        return None
    prefix, length = 4, _U32(data)[0]
    if length == _CONTINUATION:
        if len(data) < 8:
            return None
        prefix, length = 8, _U32(data, 4)[0]
    elif not length and not legacy:
        return None
    if not length:
        return Frame(END, offset, prefix)
    if length > min(longest, _LONGEST_METADATA):
        msg = (
            f"at byte {offset} there is no message: its first bytes {data[:8]!r} "
            f"would be {length} bytes of metadata"
        )
        raise Malformed(msg)
    head = prefix + length
    if offset + head > size:
        return None
    if head > len(data):
        data = peek(offset, head)
    frame = _parse(data, prefix, head, offset)
    if not 0 <= frame.body <= longest:
        msg = (
            f"the message at byte {offset} has a body of {frame.body} bytes, "
            f"and may have {longest}"
        )
        raise Malformed(msg)
    return None if frame.end > size else frame


def is_legacy(peek: Peek) -> bool:
    """Whether the first message has a prefix of four bytes."""
    return peek(0, 4) != b"\xff\xff\xff\xff"


def is_big_endian(message: bytes) -> bool:
    """Whether a schema message is of a machine that writes high bytes first.

    Raises:
        Malformed: It has no readable schema.
    """
    prefix = 8 if message[:4] == b"\xff\xff\xff\xff" else 4
    try:
        schema = table(message, root(message, prefix), 2)
        return bool(scalar(message, schema, 0, "<h"))
    except struct.error as error:
        msg = "its schema cannot be read"
        raise Malformed(msg) from error


def _parse(data: bytes, prefix: int, head: int, offset: int) -> Frame:
    try:
        message = root(data, prefix)
        slots = _slots(data, message)
        kind = data[message + slots[1]] if slots[1] else 0
        body = _I64(data, message + slots[3])[0] if slots[3] else 0
        if kind not in (ROWS, DICTIONARY):
            if kind == SCHEMA:
                return Frame(kind, offset, head, body)
            msg = f"the message at byte {offset} is of kind {kind}: no schema, no rows"
            raise Malformed(msg)
        header = table(data, message, 2)
        if kind == ROWS:
            rows, compressed = _rows(data, header)
            return Frame(kind, offset, head, body, rows, compressed=compressed)
        _, compressed = _rows(data, table(data, header, 1))
        number = scalar(data, header, 0, "<q")
        delta = bool(scalar(data, header, 2, "<B"))
        return Frame(kind, offset, head, body, 0, number, delta, compressed)
    except (struct.error, IndexError, _Unsound) as error:
        msg = f"the message at byte {offset} has no readable metadata"
        raise Malformed(msg) from error


def _rows(data: bytes, batch: int) -> tuple[int, bool]:
    """How many rows a batch has, and whether it is compressed."""
    slots = _slots(data, batch)
    rows = _I64(data, batch + slots[0])[0] if slots[0] else 0
    if not 0 <= rows < 2**48:
        msg = f"{rows} rows"
        raise _Unsound(msg)
    return rows, bool(slots[3])


class Block(NamedTuple):
    """A message as the footer of a random-access file has it."""

    offset: int
    head: int
    body: int


class Footer(NamedTuple):
    """What a random-access file says of itself at its end."""

    dictionaries: list[Block]
    rows: list[Block]
    begin: int
    """Where the footer begins: messages lie before it."""
    schema: bytes
    """A schema message. What some writers put at the beginning of the file is none."""


def read_footer(peek: Peek, size: int) -> Footer | None:
    """The footer of a random-access file; None while there is none.

    Raises:
        Malformed: What stands there is no footer.
    """
    if size < 8 + _TAIL.size:
        return None
    length, magic = _TAIL.unpack(peek(size - _TAIL.size, _TAIL.size))
    if magic != MAGIC:
        return None
    begin = size - _TAIL.size - length
    if length < 8 or begin < 8:
        msg = f"its footer would have {length} bytes, the file has {size}"
        raise Malformed(msg)
    data = peek(begin, length)
    try:
        footer = root(data, 0)
        dictionaries, rows = (_blocks(data, footer, n, begin) for n in (2, 3))
        version = scalar(data, footer, 0, "<h")
        schema = _schema_message(data, table(data, footer, 1), version)
    except (struct.error, IndexError) as error:
        msg = "its footer cannot be read"
        raise Malformed(msg) from error
    return Footer(dictionaries, rows, begin, schema)


def _schema_message(data: bytes, schema: int, version: int) -> bytes:
    """A message around the schema that is part of a footer.

    A flatbuffer refers to its parts by distance: the message is a table before the
    footer, which points at the schema inside.
    """
    vtable = struct.pack("<6H", 12, 24, 4, 6, 8, 16)  # where the table has its fields
    fields = struct.pack("<hBxI4xq", version, SCHEMA, 16 + schema, 0)
    head = (
        struct.pack("<I4x", 24) + vtable + b"\0\0\0\0" + struct.pack("<i", 16) + fields
    )
    message = head + data + b"\0" * (-len(data) % 8)
    return struct.pack("<II", _CONTINUATION, len(message)) + message


def _blocks(data: bytes, footer: int, index: int, limit: int) -> list[Block]:
    at = field(data, footer, index)
    if not at:
        return []
    begin, count = vector(data, at)
    found = []
    for entry in struct.iter_unpack("<qi4xq", data[begin : begin + 24 * count]):
        block = Block(*entry)
        if block.offset < 8 or min(block[1:]) < 0 or sum(block) > limit:
            msg = f"its footer names a message outside of the file: {entry}"
            raise Malformed(msg)
        found.append(block)
    if len(found) != count:
        msg = f"its footer names {count} messages and lists {len(found)}"
        raise Malformed(msg)
    return found


# --- flatbuffers, as far as needed ------------------------------------------------


def root(data: Bytes, at: int) -> int:
    """Where the outermost table stands."""
    return at + int(_U32(data, at)[0])


def field(data: Bytes, where: int, index: int) -> int:
    """Where a field of the table at ``where`` stands; 0 where it has its default."""
    offset = _slots(data, where)[index]
    return where + offset if offset else 0


def _slots(data: Bytes, where: int) -> tuple[int, ...]:
    """How far behind ``where`` each field of that table stands; 0 for no such field."""
    vtable = where - _I32(data, where)[0]
    if vtable < 0:
        msg = "a table begins before the buffer"
        raise _Unsound(msg)
    count = (_U16(data, vtable)[0] - 4) // 2
    if count >= _FIELDS:
        found: tuple[int, ...] = _SLOTS(data, vtable + 4)
        return found
    if count <= 0:
        return _NO_FIELDS
    return struct.unpack_from(f"<{count}H", data, vtable + 4) + _NO_FIELDS[count:]


def scalar(data: Bytes, where: int, index: int, form: str) -> Any:
    """A number of the table at ``where``; 0 where it is left out."""
    at = field(data, where, index)
    return struct.unpack_from(form, data, at)[0] if at else 0


def table(data: Bytes, where: int, index: int) -> int:
    """Where a table stands that is a field of another one."""
    at = field(data, where, index)
    if not at:
        msg = "a table is missing"
        raise _Unsound(msg)
    return root(data, at)


def vector(data: Bytes, at: int) -> tuple[int, int]:
    """Where the first element of the vector at a field stands, and how many."""
    begin = root(data, at)
    return begin + 4, int(_U32(data, begin)[0])


def uncompressed(data: bytes, body: memoryview) -> int:
    """Bytes that the body of a compressed message has when it is unpacked.

    Args:
        data: Prefix and metadata.
        body: The body.

    Raises:
        Malformed: A buffer lies outside of the body, or has no sound length.
    """
    prefix = 8 if _U32(data)[0] == _CONTINUATION else 4
    try:
        message = root(data, prefix)
        batch = table(data, message, 2)
        if scalar(data, message, 1, "<B") == DICTIONARY:
            batch = table(data, batch, 1)
        at = field(data, batch, 2)
        begin, count = vector(data, at) if at else (0, 0)
        total = 0
        for offset, length in struct.iter_unpack(
            "<qq", data[begin : begin + 16 * count]
        ):
            if length <= 0:
                continue
            if offset < 0:
                msg = "a buffer begins before the body"
                raise Malformed(msg)
            size = int(_I64(body, offset)[0])
            if size < -1:
                msg = f"a buffer of {size} bytes"
                raise Malformed(msg)
            total += length if size == -1 else size
    except struct.error as error:
        msg = "a compressed buffer lies outside of its message"
        raise Malformed(msg) from error
    return total
