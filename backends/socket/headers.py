"""What the header of an Arrow message says, read without trust.

An encapsulated message is a marker, the length of its header, the header (a FlatBuffers
table, see Arrow's ``Message.fbs``) and a body. Here the few numbers are read that a
limit has to be put on before anything is allocated; the rest is pyarrow's to verify.
"""

from __future__ import annotations

import struct
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from streamfactory.spi import CorruptData, MessageTooLarge

if TYPE_CHECKING:
    import pyarrow as pa

MARKER: Final = b"\xff\xff\xff\xff"
END: Final = MARKER + b"\0\0\0\0"
"""The last eight bytes of a stream that its writer finished."""
PREFIX: Final = len(END)

SCHEMA, DICTIONARY, ROWS = 1, 2, 3
"""Kinds of messages in a stream."""

_KINDS: Final = {SCHEMA: "schema", DICTIONARY: "dictionary", ROWS: "rows"}
_MOST_ROWS: Final = 2**31
"""Rows of nulls, or without columns, take no bytes: they need a limit of their own."""
_MOST_FIELDS: Final = 100_000
_DEEPEST: Final = 64
"""Levels of nesting: what pyarrow reads."""
_byte, _ushort, _int, _uint, _long, _pair = (
    struct.Struct(f"<{form}").unpack_from for form in ("B", "H", "i", "I", "q", "qq")
)
_SHORTS: Final = [struct.Struct(f"<{count}H").unpack_from for count in range(7)]
_REMEDY: Final = "the peer is no Arrow program, or the connection is damaged"


def corrupt(what: str) -> CorruptData:
    """The error for bytes that are no Arrow stream."""
    return CorruptData(what, remedy=_REMEDY)


def too_large(length: int, option: str, limit: int, what: str) -> MessageTooLarge:
    """The error for a length that is over its limit."""
    msg = f"{what} of {length} bytes came, {option} allows {limit}"
    remedy = f"raise {option}, or make the writer's batches smaller"
    return MessageTooLarge(msg, remedy=remedy)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is taken from a peer. Bytes."""

    metadata: int
    message: int
    dictionary: int


class Header(NamedTuple):
    """What a message says of itself."""

    kind: int
    """`SCHEMA`, `DICTIONARY` or `ROWS`."""
    body: int
    """Bytes that follow."""
    dictionary: int = 0
    """Id, of a dictionary."""
    delta: bool = False
    """Whether it is added to what is held, rather than put in its place."""
    compressed: tuple[tuple[int, int], ...] = ()
    """Where buffers lie in the body, and how long, where they are compressed."""
    foreign_order: bool = False
    """Whether values have the order of bytes that this machine has not; of a schema."""


def header_length(prefix: memoryview, limits: Limits) -> int:
    """How long the header is; 0 at the end of the stream.

    Raises:
        CorruptData: data_loss.
        MessageTooLarge: permanent.
    """
    marker, length = struct.unpack("<Ii", prefix)
    if marker != 0xFFFFFFFF or length < 0 or length % 8:
        shown = bytes(prefix)
        msg = f"{shown!r} came, where an Arrow message was to begin"
        raise corrupt(msg)
    if length > limits.metadata:
        raise too_large(length, "max.metadata.bytes", limits.metadata, "a header")
    return int(length)


def read_header(data: memoryview, limits: Limits) -> Header:
    """Read a header, and check what it announces.

    Raises:
        CorruptData: data_loss.
        MessageTooLarge: permanent.
    """
    try:
        _, kind_at, content_at, body_at = _fields(data, _uint(data, 0)[0], 4)
        kind = _byte(data, kind_at)[0] if kind_at else 0
        body = _long(data, body_at)[0] if body_at else 0
        if kind not in _KINDS or not content_at:
            msg = f"a message of kind {kind} came, which is not of an Arrow stream"
            raise corrupt(msg)
        if body < 0 or body % 8 or (kind == SCHEMA and body):
            msg = f"a message announces a body of {body} bytes"
            raise corrupt(msg)
        if body > limits.message:
            raise too_large(body, "max.message.bytes", limits.message, "a message")
        content = _target(data, content_at)
        if kind == ROWS:
            return Header(ROWS, body, compressed=_read_rows(data, content))
        if kind == DICTIONARY:
            return _read_dictionary(data, content, body)
        order_at, fields_at = _fields(data, content, 2)
        order = _ushort(data, order_at)[0] if order_at else 0
        _count_fields(data, _tables(data, fields_at), _MOST_FIELDS)
    except struct.error as error:
        msg = "the header of a message points outside of itself"
        raise corrupt(msg) from error
    return Header(SCHEMA, 0, foreign_order=order != (sys.byteorder == "big"))


def _read_rows(data: memoryview, at: int) -> tuple[tuple[int, int], ...]:
    """Where the buffers of a batch are, if they are compressed."""
    length_at, _, buffers_at, compression_at = _fields(data, at, 4)
    length = _long(data, length_at)[0] if length_at else 0
    if not 0 <= length < _MOST_ROWS:
        msg = f"a message announces {length} rows"
        raise corrupt(msg)
    if not compression_at:
        return ()
    start, count = _vector(data, buffers_at)
    if start + 16 * count > len(data):
        msg = "the list of buffers ends outside of its header"
        raise corrupt(msg)
    return tuple(_pair(data, start + 16 * number) for number in range(count))


def _read_dictionary(data: memoryview, at: int, body: int) -> Header:
    id_at, rows_at, delta_at = _fields(data, at, 3)
    if not rows_at:
        msg = "a dictionary came without values"
        raise corrupt(msg)
    number = _long(data, id_at)[0] if id_at else 0
    delta = bool(_byte(data, delta_at)[0]) if delta_at else False
    compressed = _read_rows(data, _target(data, rows_at))
    return Header(DICTIONARY, body, number, delta, compressed)


def expanded(header: Header, body: pa.Buffer, limits: Limits) -> int:
    """Bytes of a message's buffers, decompressed.

    Raises:
        CorruptData: data_loss; a buffer lies outside of the body.
        MessageTooLarge: permanent.
    """
    if not header.compressed:
        return header.body
    total, data = 0, memoryview(body)
    for at, length in header.compressed:
        if length == 0:
            continue
        if at < 0 or length < 8 or at + length > header.body:
            msg = "a compressed buffer lies outside of its message"
            raise corrupt(msg)
        plain = struct.unpack_from("<q", data, at)[0]
        if plain < -1:
            msg = f"a compressed buffer announces {plain} bytes"
            raise corrupt(msg)
        total += length if plain == -1 else plain
        if total > limits.message:
            what = "a decompressed message"
            raise too_large(total, "max.message.bytes", limits.message, what)
    return total


def _count_fields(
    data: memoryview, fields: list[int], left: int, levels: int = _DEEPEST
) -> int:
    """How many more fields are allowed.

    Tables may share children, so that a short schema can name very many fields.
    """
    left -= len(fields)
    if left < 0 or not levels:
        msg = f"a schema has more than {_MOST_FIELDS} fields, or {_DEEPEST} levels"
        raise corrupt(msg)
    for field in fields:
        children = _tables(data, _fields(data, field, 6)[5])
        left = _count_fields(data, children, left, levels - 1)
    return left


# --- FlatBuffers: what points outside is struct.error ------------------------------


def _fields(data: memoryview, at: int, count: int) -> list[int]:
    """Where the first fields of a table are; 0 for one that is left out."""
    table = at - _int(data, at)[0]
    if table < 0:  # which would count from the end
        msg = "negative"
        raise struct.error(msg)
    known = max(0, _ushort(data, table)[0] // 2 - 2)
    if known >= count:
        found = _SHORTS[count](data, table + 4)
        return [at + offset if offset else 0 for offset in found]
    return [*_fields(data, at, known), *[0] * (count - known)]


def _target(data: memoryview, at: int) -> int:
    """What a reference leads to."""
    return int(at + _uint(data, at)[0])


def _vector(data: memoryview, at: int) -> tuple[int, int]:
    """Where the elements begin, and how many there are."""
    if not at:
        return 0, 0
    start = _target(data, at)
    return start + 4, int(_uint(data, start)[0])


def _tables(data: memoryview, at: int) -> list[int]:
    start, count = _vector(data, at)
    if count > _MOST_FIELDS:
        msg = f"a schema has more than {_MOST_FIELDS} fields"
        raise corrupt(msg)
    return [_target(data, place) for place in range(start, start + 4 * count, 4)]
