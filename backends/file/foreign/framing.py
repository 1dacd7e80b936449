"""Positions of Arrow IPC messages in a file, found without reading their bodies.

A message is a length prefix, metadata (a flatbuffer) and a body, whose length is part
of the metadata. The file is untrusted: every number is checked before it is used.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streamfactory.arrowipc import fields, target, vector

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamfactory.arrowipc import Bytes

    Peek = Callable[[int, int], bytes]
    """Returns bytes at an offset; fewer at the end of the file."""


MAGIC: Final = b"ARROW1"
SCHEMA: Final = 1
DICTIONARY: Final = 2
ROWS: Final = 3
END: Final = 0
"""Kinds of a frame; the first three are Arrow's numbers."""

_CONTINUATION: Final = 0xFFFFFFFF
_OLDEST: Final = 3
"""Version 4 of the metadata: the first that is read."""
_GLANCE: Final = 1024
"""Bytes that contain the metadata of most messages."""
_LONGEST_METADATA: Final = 256 * 1024**2
_TAIL: Final = struct.Struct("<i6s")
_U32: Final = struct.Struct("<I").unpack_from
_I64: Final = struct.Struct("<q").unpack_from


class Malformed(Exception):
    """The bytes are not valid Arrow IPC. The text is the reason."""


class Frame(NamedTuple):
    """Position and metadata of one message."""

    kind: int
    offset: int
    head: int
    """Bytes of prefix and metadata, before the body."""
    body: int = 0
    rows: int = 0
    dictionary: int = 0
    """Id of a dictionary."""
    delta: bool = False
    compressed: bool = False

    @property
    def size(self) -> int:
        """Bytes of the whole message."""
        return self.head + self.body

    @property
    def end(self) -> int:
        """Offset of the next message."""
        return self.offset + self.head + self.body


def read_frame(
    peek: Peek, offset: int, size: int, *, longest: int, legacy: bool
) -> Frame | None:
    """The message at ``offset``; None while it is incomplete.

    Args:
        peek: Reads the file.
        offset: Position of the message.
        size: Size of the file.
        longest: Maximum bytes of a message.
        legacy: Whether prefixes have four bytes, as before Arrow 0.15. Otherwise four
            zero bytes are not an end marker: a file system may preallocate them.

    Raises:
        Malformed: The bytes are not a message.
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
            f"no message at byte {offset}: its first bytes {data[:8]!r} "
            f"would mean {length} bytes of metadata"
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
            f"the message at byte {offset} declares a body of {frame.body} bytes, "
            f"message.max.bytes is {longest}"
        )
        raise Malformed(msg)
    return None if frame.end > size else frame


def is_legacy(peek: Peek) -> bool:
    """Whether the first message has a prefix of four bytes."""
    return peek(0, 4) != b"\xff\xff\xff\xff"


def is_big_endian(message: bytes) -> bool:
    """Whether a schema message declares big-endian data.

    Raises:
        Malformed: The schema cannot be parsed.
    """
    prefix = 8 if message[:4] == b"\xff\xff\xff\xff" else 4
    try:
        schema = table(message, target(message, prefix), 2)
        return bool(scalar(message, schema, 0, "<h"))
    except struct.error as error:
        msg = "the schema cannot be parsed"
        raise Malformed(msg) from error


def _parse(data: bytes, prefix: int, head: int, offset: int) -> Frame:
    try:
        message = target(data, prefix)
        _, kind_at, header_at, body_at = fields(data, message, 4)
        kind = data[kind_at] if kind_at else 0
        body = _I64(data, body_at)[0] if body_at else 0
        if kind not in (ROWS, DICTIONARY):
            if kind == SCHEMA:
                return Frame(kind, offset, head, body)
            msg = (
                f"the message at byte {offset} has kind {kind}, which is not supported"
            )
            raise Malformed(msg)
        if not header_at:
            msg = "a table is missing"
            raise struct.error(msg)
        header = target(data, header_at)
        if kind == ROWS:
            rows, compressed = _rows(data, header)
            return Frame(kind, offset, head, body, rows, compressed=compressed)
        _, compressed = _rows(data, table(data, header, 1))
        number = scalar(data, header, 0, "<q")
        delta = bool(scalar(data, header, 2, "<B"))
        return Frame(kind, offset, head, body, 0, number, delta, compressed)
    except (struct.error, IndexError) as error:
        msg = f"the metadata of the message at byte {offset} cannot be parsed"
        raise Malformed(msg) from error


def _rows(data: bytes, batch: int) -> tuple[int, bool]:
    """Number of rows of a batch, and whether it is compressed."""
    rows_at, _, _, compression_at = fields(data, batch, 4)
    rows = _I64(data, rows_at)[0] if rows_at else 0
    if not 0 <= rows < 2**48:
        msg = f"{rows} rows"
        raise struct.error(msg)
    return rows, bool(compression_at)


class Block(NamedTuple):
    """Position of a message, from the footer of a random-access file."""

    offset: int
    head: int
    body: int


class Footer(NamedTuple):
    """The footer of a random-access file."""

    dictionaries: list[Block]
    rows: list[Block]
    begin: int
    """Offset of the footer. All messages are before it."""
    schema: bytes
    """A schema message. Some writers store an invalid one at the start of the file."""


def read_footer(peek: Peek, size: int) -> Footer | None:
    """The footer of a random-access file; None if there is none yet.

    Raises:
        Malformed: The footer is invalid.
    """
    if size < 8 + _TAIL.size:
        return None
    length, magic = _TAIL.unpack(peek(size - _TAIL.size, _TAIL.size))
    if magic != MAGIC:
        return None
    begin = size - _TAIL.size - length
    if length < 8 or begin < 8:
        msg = f"the footer declares {length} bytes, the file has {size}"
        raise Malformed(msg)
    data = peek(begin, length)
    try:
        footer = target(data, 0)
        dictionaries, rows = (_blocks(data, footer, n, begin) for n in (2, 3))
        # Footers of early versions state less than their messages, which count.
        version = max(_OLDEST, scalar(data, footer, 0, "<h"))
        schema = _schema_message(data, table(data, footer, 1), version)
    except (struct.error, IndexError) as error:
        msg = "the footer cannot be parsed"
        raise Malformed(msg) from error
    return Footer(dictionaries, rows, begin, schema)


def _schema_message(data: bytes, schema: int, version: int) -> bytes:
    """A schema message for the schema in a footer.

    References in a flatbuffer are relative: the message is a table before the footer
    that points to the schema inside.
    """
    vtable = struct.pack("<6H", 12, 24, 4, 6, 8, 16)  # field offsets of the table
    fields = struct.pack("<hBxI4xq", version, SCHEMA, 16 + schema, 0)
    head = (
        struct.pack("<I4x", 24) + vtable + b"\0\0\0\0" + struct.pack("<i", 16) + fields
    )
    message = head + data + b"\0" * (-len(data) % 8)
    return struct.pack("<II", _CONTINUATION, len(message)) + message


def _blocks(data: bytes, footer: int, index: int, limit: int) -> list[Block]:
    begin, count = vector(data, field(data, footer, index))
    found = []
    for entry in struct.iter_unpack("<qi4xq", data[begin : begin + 24 * count]):
        block = Block(*entry)
        if block.offset < 8 or min(block[1:]) < 0 or sum(block) > limit:
            msg = f"the footer names a message outside of the file: {entry}"
            raise Malformed(msg)
        found.append(block)
    if len(found) != count:
        msg = f"the footer declares {count} messages and lists {len(found)}"
        raise Malformed(msg)
    return found


# --- FlatBuffers: what points outside is struct.error ------------------------------


def field(data: Bytes, where: int, index: int) -> int:
    """Position of a field of the table at ``where``; 0 if it is absent."""
    return fields(data, where, index + 1)[index]


def scalar(data: Bytes, where: int, index: int, form: str) -> Any:
    """A number of the table at ``where``; 0 if it is absent."""
    at = field(data, where, index)
    return struct.unpack_from(form, data, at)[0] if at else 0


def table(data: Bytes, where: int, index: int) -> int:
    """Position of a table that is a field of another table."""
    at = field(data, where, index)
    if not at:
        msg = "a table is missing"
        raise struct.error(msg)
    return target(data, at)


def uncompressed(data: bytes, body: memoryview) -> int:
    """Bytes of the decompressed body of a compressed message.

    Args:
        data: Prefix and metadata.
        body: The body.

    Raises:
        Malformed: A buffer is outside of the body, or has an invalid length.
    """
    prefix = 8 if _U32(data)[0] == _CONTINUATION else 4
    try:
        message = target(data, prefix)
        batch = table(data, message, 2)
        if scalar(data, message, 1, "<B") == DICTIONARY:
            batch = table(data, batch, 1)
        begin, count = vector(data, field(data, batch, 2))
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
                msg = f"a buffer declares {size} bytes"
                raise Malformed(msg)
            total += length if size == -1 else size
    except struct.error as error:
        msg = "a compressed buffer is outside of its message"
        raise Malformed(msg) from error
    return total
