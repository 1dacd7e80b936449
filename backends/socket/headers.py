"""What the header of an Arrow message says, read without trust.

An encapsulated message is a marker, the length of its header, the header (a FlatBuffers
table, see Arrow's ``Message.fbs``) and a body. Here the few numbers are read that a
limit has to be put on before anything is allocated; the rest is pyarrow's to verify.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from streamfactory.spi import CorruptData, MessageTooLarge

MARKER: Final = b"\xff\xff\xff\xff"
END: Final = MARKER + b"\0\0\0\0"
"""The last eight bytes of a stream that its writer finished."""
PREFIX: Final = len(END)

SCHEMA, DICTIONARY, ROWS = 1, 2, 3
"""Kinds of messages in a stream."""

_KINDS: Final = {SCHEMA: "schema", DICTIONARY: "dictionary", ROWS: "rows"}
_MOST_ROWS: Final = 2**31
"""Rows without columns, or of nulls, take no bytes: their number needs its own limit."""
_MOST_FIELDS: Final = 100_000
_DEEPEST: Final = 64
"""Levels of nesting: what pyarrow reads."""
_REMEDY: Final = "the peer is no Arrow program, or the connection is damaged"


def corrupt(what: str) -> CorruptData:
    """The error for bytes that are no Arrow stream."""
    return CorruptData(what, remedy=_REMEDY)


def too_large(what: str, length: int, option: str, limit: int) -> MessageTooLarge:
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


@dataclass(frozen=True, slots=True)
class Header:
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
        raise too_large("a header", length, "max.metadata.bytes", limits.metadata)
    return int(length)


def read_header(data: bytes | bytearray | memoryview, limits: Limits) -> Header:
    """Read a header, and check what it announces.

    Raises:
        CorruptData: data_loss.
        MessageTooLarge: permanent.
    """
    try:
        message = _Table.root(data)
        kind, body = message.number(1, "<B"), message.number(3, "<q")
        content = message.table(2)
        if kind not in _KINDS or content is None:
            msg = f"a message of kind {kind} came, which is not of an Arrow stream"
            raise corrupt(msg)
        found = _read_content(content, kind, body, limits)
    except struct.error as error:
        msg = "the header of a message points outside of itself"
        raise corrupt(msg) from error
    return found


def _read_content(content: _Table, kind: int, body: int, limits: Limits) -> Header:
    if body < 0 or body % 8 or (kind == SCHEMA and body):
        msg = f"a message announces a body of {body} bytes"
        raise corrupt(msg)
    if kind == SCHEMA:
        _count_fields(content.tables(1), _MOST_FIELDS, _DEEPEST)
        return Header(kind, body)
    if body > limits.message:
        raise too_large("a message", body, "max.message.bytes", limits.message)
    rows: _Table | None = content
    if kind == DICTIONARY:
        rows = content.table(1)
        if rows is None:
            msg = "a dictionary came without values"
            raise corrupt(msg)
    assert rows is not None
    if not 0 <= rows.number(0, "<q") < _MOST_ROWS:
        msg = f"a message announces {rows.number(0, '<q')} rows"
        raise corrupt(msg)
    compressed = () if rows.table(3) is None else rows.pairs(2)
    if kind == ROWS:
        return Header(kind, body, compressed=compressed)
    number, delta = content.number(0, "<q"), bool(content.number(2, "<B"))
    return Header(kind, body, number, delta, compressed)


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
            raise too_large(what, total, "max.message.bytes", limits.message)
    return total


def _count_fields(fields: list[_Table], left: int, levels: int) -> int:
    """How many more fields are allowed.

    Tables may share children, so that a short schema can name very many fields.
    """
    left -= len(fields)
    if left < 0 or not levels:
        msg = f"a schema has more than {_MOST_FIELDS} fields, or {_DEEPEST} levels"
        raise corrupt(msg)
    for field in fields:
        left = _count_fields(field.tables(5), left, levels - 1)
    return left


@dataclass(frozen=True, slots=True)
class _Table:
    """A FlatBuffers table. What points outside is `struct.error`."""

    data: bytes | bytearray | memoryview
    at: int
    fields: int
    """Where the table of its fields is."""
    known: int
    """Bytes of that."""

    @classmethod
    def root(cls, data: bytes | bytearray | memoryview) -> _Table:
        return cls.of(data, _unpack("<I", data, 0))

    @classmethod
    def of(cls, data: bytes | bytearray | memoryview, at: int) -> _Table:
        fields = at - _unpack("<i", data, at)
        return cls(data, at, fields, _unpack("<H", data, fields))

    def place(self, index: int) -> int:
        """Where a field is; 0 where it is left out."""
        entry = 4 + 2 * index
        if entry + 2 > self.known:
            return 0
        offset = _unpack("<H", self.data, self.fields + entry)
        return self.at + offset if offset else 0

    def number(self, index: int, form: str) -> int:
        place = self.place(index)
        return _unpack(form, self.data, place) if place else 0

    def table(self, index: int) -> _Table | None:
        place = self.place(index)
        if not place:
            return None
        return _Table.of(self.data, place + _unpack("<I", self.data, place))

    def vector(self, index: int) -> tuple[int, int]:
        """Where its elements begin, and how many there are."""
        place = self.place(index)
        if not place:
            return 0, 0
        start = place + _unpack("<I", self.data, place)
        count = _unpack("<I", self.data, start)
        return start + 4, count

    def tables(self, index: int) -> list[_Table]:
        start, count = self.vector(index)
        if count > _MOST_FIELDS:
            msg = f"a schema has more than {_MOST_FIELDS} fields"
            raise corrupt(msg)
        places = range(start, start + 4 * count, 4)
        return [_Table.of(self.data, p + _unpack("<I", self.data, p)) for p in places]

    def pairs(self, index: int) -> tuple[tuple[int, int], ...]:
        start, count = self.vector(index)
        if start + 16 * count > len(self.data):
            msg = "the list of buffers ends outside of its header"
            raise corrupt(msg)
        return tuple(
            struct.unpack_from("<qq", self.data, start + 16 * number)
            for number in range(count)
        )


def _unpack(form: str, data: bytes | bytearray | memoryview, at: int) -> int:
    if at < 0:  # which would count from the end
        msg = "negative"
        raise struct.error(msg)
    return int(struct.unpack_from(form, data, at)[0])
