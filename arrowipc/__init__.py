"""The headers of Arrow IPC messages, read and bounded before anything is allocated.

An encapsulated message is a marker, the length of its header, the header (a FlatBuffers
table, see Arrow's ``Message.fbs``) and a body. Read here are the few numbers that a
limit has to be put on before anything is allocated; the rest is pyarrow's to verify.
"""

from __future__ import annotations

import struct
import sys
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa

    Bytes = memoryview | bytes | bytearray

MARKER: Final = b"\xff\xff\xff\xff"
END: Final = MARKER + b"\0\0\0\0"
"""The last eight bytes of a stream that its writer finished."""
PREFIX: Final = len(END)
"""Bytes before a header: the marker and the header's length."""

SCHEMA, DICTIONARY, ROWS = 1, 2, 3
"""Kinds of messages in a stream."""

ROWS_PER_BYTE: Final = 8
"""The narrowest column needs one bit per row, so more rows cannot have values."""

_KINDS: Final = (SCHEMA, DICTIONARY, ROWS)
_MOST_ROWS: Final = 2**31
"""Rows of nulls, or without columns, take no bytes: they need a limit of their own."""
_ANY: Final = 2**63
"""A limit that no length exceeds."""
_MOST_FIELDS: Final = 100_000
_DEEPEST: Final = 64
"""Levels of nesting: what pyarrow reads."""
_byte, _ushort, _int, _uint, _long, _pair = (
    struct.Struct(f"<{form}").unpack_from for form in ("B", "H", "i", "I", "q", "qq")
)
_BLOCK: Final = struct.Struct("<qi4xq")
"""Offset, bytes of prefix and header, bytes of the body."""
_SHORTS: Final = [struct.Struct(f"<{count}H").unpack_from for count in range(7)]


class NotIpc(ValueError):
    """The bytes are no Arrow message. The text tells numbers of it, no other part."""


class IpcTooLong(ValueError):
    """A message announces more than its reader allows."""

    def __init__(self, length: int, limit: int) -> None:
        super().__init__(f"{length} bytes are announced, {limit} are allowed")
        self.length = length
        self.limit = limit


class IpcHeader(NamedTuple):
    """What a message says of itself."""

    kind: int
    """`SCHEMA`, `DICTIONARY` or `ROWS`."""
    body: int
    """Bytes that follow."""
    rows: int = 0
    """Of a batch, and of a dictionary's words."""
    dictionary: int = 0
    """Id, of a dictionary."""
    delta: bool = False
    """Whether it is added to what is held, rather than put in its place."""
    compressed: tuple[tuple[int, int], ...] | None = None
    """Where buffers lie in the body, and how long; None where none is compressed."""
    foreign_order: bool = False
    """Whether values have the order of bytes that this machine has not; of a schema."""


class IpcBlock(NamedTuple):
    """Where a message of a random-access file lies."""

    offset: int
    head: int
    """Bytes of the prefix and the header."""
    body: int


def file_blocks(footer: memoryview) -> tuple[list[IpcBlock], list[IpcBlock]]:
    """Where the dictionaries of a random-access file lie, and where its batches do.

    Args:
        footer: The footer alone.

    Raises:
        NotIpc: It is none.
    """
    try:
        found = fields(footer, target(footer, 0), 4)
        dictionaries, batches = (_blocks(footer, at) for at in found[2:])
    except struct.error as error:
        msg = "the footer of a file points outside of itself"
        raise NotIpc(msg) from error
    return dictionaries, batches


def header_length(prefix: memoryview, limit: int = _ANY) -> int:
    """How long the header is that follows; 0 at the end of the stream.

    Args:
        prefix: `PREFIX` bytes.
        limit: Bytes that it may have.

    Raises:
        NotIpc: No message begins here.
        IpcTooLong: It is longer than the limit.
    """
    marker, length = struct.unpack("<Ii", prefix)
    if marker != 0xFFFFFFFF or length < 0 or length % 8:
        msg = "no Arrow message begins here"
        raise NotIpc(msg)
    if length > limit:
        raise IpcTooLong(length, limit)
    return int(length)


def read_header(data: memoryview, limit: int = _ANY) -> IpcHeader:
    """Read a header.

    Args:
        data: The header alone.
        limit: Bytes that the body may have.

    Raises:
        NotIpc: It is none, or announces what no message can have.
        IpcTooLong: The body is longer than the limit.
    """
    try:
        _, kind_at, content_at, body_at = fields(data, target(data, 0), 4)
        kind = _byte(data, kind_at)[0] if kind_at else 0
        body = _long(data, body_at)[0] if body_at else 0
        if kind not in _KINDS or not content_at:
            msg = f"a message of kind {kind} came, which is not of an Arrow stream"
            raise NotIpc(msg)
        if body < 0 or body % 8 or (kind == SCHEMA and body):
            msg = f"a message announces a body of {body} bytes"
            raise NotIpc(msg)
        if body > limit:
            raise IpcTooLong(body, limit)
        content = target(data, content_at)
        if kind == ROWS:
            rows, compressed = _read_rows(data, content)
            return IpcHeader(ROWS, body, rows, compressed=compressed)
        if kind == DICTIONARY:
            return _read_dictionary(data, content, body)
        order_at, fields_at = fields(data, content, 2)
        order = _ushort(data, order_at)[0] if order_at else 0
        _count_fields(data, _tables(data, fields_at), _MOST_FIELDS)
    except struct.error as error:
        msg = "the header of a message points outside of itself"
        raise NotIpc(msg) from error
    return IpcHeader(SCHEMA, 0, foreign_order=order != (sys.byteorder == "big"))


def expanded(header: IpcHeader, body: memoryview | pa.Buffer, limit: int) -> int:
    """Bytes of a message's buffers, decompressed.

    Args:
        header: The message's.
        body: What follows it.
        limit: Bytes that all of them may have together.

    Raises:
        NotIpc: A buffer lies outside of the body, or announces what cannot be.
        IpcTooLong: They have more than the limit.
    """
    if header.compressed is None:
        return header.body
    total, data = 0, memoryview(body)
    for at, length in header.compressed:
        if length == 0:
            continue
        if at < 0 or length < 8 or at + length > header.body:
            msg = "a compressed buffer lies outside of its message"
            raise NotIpc(msg)
        plain = _long(data, at)[0]
        if plain < -1:
            msg = f"a compressed buffer announces {plain} bytes"
            raise NotIpc(msg)
        total += length if plain == -1 else plain
        if total > limit:
            raise IpcTooLong(total, limit)
    return total


def _read_rows(
    data: memoryview, at: int
) -> tuple[int, tuple[tuple[int, int], ...] | None]:
    """How many rows a batch has, and where its buffers are, if they are compressed."""
    length_at, _, buffers_at, compression_at = fields(data, at, 4)
    length = _long(data, length_at)[0] if length_at else 0
    if not 0 <= length < _MOST_ROWS:
        msg = f"a message announces {length} rows"
        raise NotIpc(msg)
    if not compression_at:
        return length, None
    start, count = vector(data, buffers_at)
    if start + 16 * count > len(data):
        msg = "the list of buffers ends outside of its header"
        raise NotIpc(msg)
    return length, tuple(_pair(data, start + 16 * number) for number in range(count))


def _read_dictionary(data: memoryview, at: int, body: int) -> IpcHeader:
    id_at, rows_at, delta_at = fields(data, at, 3)
    if not rows_at:
        msg = "a dictionary came without values"
        raise NotIpc(msg)
    number = _long(data, id_at)[0] if id_at else 0
    delta = bool(_byte(data, delta_at)[0]) if delta_at else False
    rows, compressed = _read_rows(data, target(data, rows_at))
    return IpcHeader(DICTIONARY, body, rows, number, delta, compressed)


def _blocks(data: memoryview, at: int) -> list[IpcBlock]:
    start, count = vector(data, at)
    if start + _BLOCK.size * count > len(data):
        msg = "the list of blocks ends outside of its footer"
        raise NotIpc(msg)
    places = range(start, start + _BLOCK.size * count, _BLOCK.size)
    found = [IpcBlock(*_BLOCK.unpack_from(data, place)) for place in places]
    if any(
        block.offset < 0 or block.head < PREFIX or block.body < 0 for block in found
    ):
        msg = "a block of a footer lies outside of the file"
        raise NotIpc(msg)
    return found


def _count_fields(
    data: memoryview, tables: list[int], left: int, levels: int = _DEEPEST
) -> int:
    """How many more fields are allowed.

    Tables may share children, so that a short schema can name very many fields.
    """
    left -= len(tables)
    if left < 0 or not levels:
        msg = f"a schema has more than {_MOST_FIELDS} fields, or {_DEEPEST} levels"
        raise NotIpc(msg)
    for table in tables:
        children = _tables(data, fields(data, table, 6)[5])
        left = _count_fields(data, children, left, levels - 1)
    return left


# --- FlatBuffers: what points outside is struct.error ------------------------------


def fields(data: Bytes, at: int, count: int) -> list[int]:
    """Where the first fields of a table are, at most 6; 0 for one that is left out."""
    table = at - _int(data, at)[0]
    if table < 0:  # which would count from the end
        msg = "negative"
        raise struct.error(msg)
    known = max(0, _ushort(data, table)[0] // 2 - 2)
    if known >= count:
        found = _SHORTS[count](data, table + 4)
        return [at + offset if offset else 0 for offset in found]
    return [*fields(data, at, known), *[0] * (count - known)]


def target(data: Bytes, at: int) -> int:
    """What a reference leads to."""
    return int(at + _uint(data, at)[0])


def vector(data: Bytes, at: int) -> tuple[int, int]:
    """Where the elements begin, and how many there are."""
    if not at:
        return 0, 0
    start = target(data, at)
    return start + 4, int(_uint(data, start)[0])


def _tables(data: memoryview, at: int) -> list[int]:
    start, count = vector(data, at)
    if count > _MOST_FIELDS:
        msg = f"a schema has more than {_MOST_FIELDS} fields"
        raise NotIpc(msg)
    return [target(data, place) for place in range(start, start + 4 * count, 4)]
