"""What an Arrow message says of itself, read without trust and before anything is made.

An encapsulated message is a marker, the length of its header, the header (a FlatBuffers
table, see Arrow's ``Message.fbs``) and a body. Read here are the few numbers that say
how much it would become; the rest is pyarrow's to verify.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEMA, DICTIONARY, ROWS = 1, 2, 3
"""Kinds of messages."""

_PREFIX: Final = 8
_END: Final = b"\xff\xff\xff\xff\0\0\0\0"
_ROWS_PER_BYTE: Final = 8
"""The narrowest column has a bit a row: what has more rows has no values for them."""

_byte, _ushort, _int, _uint, _long, _pair = (
    struct.Struct(f"<{form}").unpack_from for form in ("B", "H", "i", "I", "q", "qq")
)


class NotArrow(ValueError):
    """The message is none, or is too large. Says why, without a part of it."""

    def __init__(self, why: str, code: str = "malformed") -> None:
        super().__init__(why)
        self.code = code


class Header(NamedTuple):
    """What one message announces."""

    kind: int
    end: int
    """Where it ends in the payload."""
    expanded: int
    """Bytes of its buffers, decompressed."""


def walk(data: memoryview, limit: int) -> Iterator[Header]:
    """The messages of a payload, each checked; until the mark of the end, or the end.

    Args:
        data: The payload.
        limit: Bytes that all of them may have, decompressed.

    Raises:
        NotArrow: One is malformed or too large, or something follows the end.
    """
    at = total = 0
    first = None
    while at < len(data):
        if bytes(data[at : at + len(_END) + 1]) == _END:
            return
        try:
            header = _header(data, at)
        except struct.error:
            why = "the message points outside of itself"
            raise NotArrow(why) from None
        first = first or header.kind
        total += header.expanded
        if total > limit:
            why = f"the message becomes more than the {limit} bytes that are allowed"
            raise NotArrow(why, "too_large")
        yield header
        at = header.end
        if first != SCHEMA and at < len(data):
            why = f"{len(data) - at} bytes follow the batch"
            raise NotArrow(why)
    if first != ROWS:
        why = "the stream is cut short"
        raise NotArrow(why)


def _header(data: memoryview, at: int) -> Header:
    marker, length = struct.unpack_from("<Ii", data, at)
    if marker != 0xFFFFFFFF or length <= 0 or length % 8:
        why = "it is no Arrow stream and no batch"
        raise NotArrow(why)
    start = at + _PREFIX
    if start + length > len(data):
        why = "the message is cut short"
        raise NotArrow(why)
    head = data[start : start + length]
    _, kind_at, content_at, body_at = _fields(head, _uint(head, 0)[0], 4)
    kind = _byte(head, kind_at)[0] if kind_at else 0
    size = _long(head, body_at)[0] if body_at else 0
    if kind not in (SCHEMA, DICTIONARY, ROWS) or not content_at:
        why = "a message in it is of an unknown kind"
        raise NotArrow(why)
    body = start + length
    if size < 0 or size % 8 or body + size > len(data) or (kind == SCHEMA and size):
        why = "a body is cut short, or has no length"
        raise NotArrow(why)
    content, expanded = _target(head, content_at), 0
    if kind == DICTIONARY:
        rows_at = _fields(head, content, 2)[1]
        if not rows_at:
            why = "a dictionary has no values"
            raise NotArrow(why)
        content = _target(head, rows_at)
    if kind != SCHEMA:
        expanded = _rows(head, content, data[body : body + size])
    return Header(kind, body + size, expanded)


def _rows(head: memoryview, at: int, body: memoryview) -> int:
    """Bytes of a batch, decompressed."""
    length_at, _, buffers_at, compression_at = _fields(head, at, 4)
    length = _long(head, length_at)[0] if length_at else 0
    expanded = len(body)
    if compression_at:
        expanded = 0
        start = _target(head, buffers_at) if buffers_at else 0
        count = _uint(head, start)[0] if buffers_at else 0
        if start + 4 + 16 * count > len(head):
            raise struct.error
        for number in range(count):
            expanded += _expanded(body, *_pair(head, start + 4 + 16 * number))
    if not 0 <= length <= _ROWS_PER_BYTE * expanded:
        why = "a batch announces more rows than it has bytes for"
        raise NotArrow(why)
    return expanded


def _expanded(body: memoryview, at: int, length: int) -> int:
    if length == 0:
        return 0
    if at < 0 or length < 8 or at + length > len(body):
        raise struct.error
    plain = _long(body, at)[0]
    if plain < -1:
        raise struct.error
    return length if plain == -1 else int(plain)


def _fields(data: memoryview, at: int, count: int) -> list[int]:
    """Where the first fields of a table are; 0 for one that is left out."""
    table = at - _int(data, at)[0]
    if table < 0:  # which would count from the end
        raise struct.error
    known = min(max(0, _ushort(data, table)[0] // 2 - 2), count)
    found = struct.unpack_from(f"<{known}H", data, table + 4)
    return [at + place if place else 0 for place in found] + [0] * (count - known)


def _target(data: memoryview, at: int) -> int:
    return int(at + _uint(data, at)[0])


# --- many at once -------------------------------------------------------------------


def plain_batches(
    starts: np.ndarray, lengths: np.ndarray, data: np.ndarray
) -> np.ndarray:
    """Which payloads are one batch without compression, of a length that fits.

    The same look as `walk` has, by columns: whatever is unusual is left to it.

    Args:
        starts: Where each payload begins.
        lengths: How long each is.
        data: All bytes.
    """
    look = _Look(starts, lengths, data)
    zero = np.zeros(len(starts), np.int64)
    look.right &= look.read(zero, 4) == 0xFFFFFFFF
    head = look.read(zero + 4, 4)
    look.right &= (head > 0) & (head < 1 << 31) & (head % 8 == 0)
    root = _PREFIX + look.read(zero + _PREFIX, 4)
    kind, content, body = (look.field(root, number) for number in (1, 2, 3))
    look.right &= (kind > 0) & (content > 0) & (body > 0)
    look.right &= look.read(kind, 1) == ROWS
    size = look.read(body, 8)
    look.right &= (size >= 0) & (_PREFIX + head + size == lengths)
    rows = content + look.read(content, 4)
    count_at, compression = look.field(rows, 0), look.field(rows, 3)
    count = np.where(count_at > 0, look.read(count_at, 8), 0)
    look.right &= (count >= 0) & (count <= _ROWS_PER_BYTE * size) & (compression == 0)
    return look.right


class _Look:
    """Reads little-endian numbers at a place of each payload."""

    def __init__(
        self, starts: np.ndarray, lengths: np.ndarray, data: np.ndarray
    ) -> None:
        self._starts, self._lengths = starts, lengths
        self._data = data if len(data) else np.zeros(1, np.uint8)
        self.right = lengths >= _PREFIX
        """Payloads in which nothing was found wrong so far."""

    def read(self, at: np.ndarray, width: int) -> np.ndarray:
        """A number; where the place is outside of the payload, it is not right."""
        inside = (at >= 0) & (at + width <= self._lengths)
        self.right &= inside
        places = np.where(inside, self._starts + at, 0)
        found = np.zeros(len(at), np.uint64)
        last = len(self._data) - 1
        for byte in range(width):
            part = self._data[np.minimum(places + byte, last)].astype(np.uint64)
            found |= part << np.uint64(8 * byte)
        return found.astype(np.int64)

    def field(self, table: np.ndarray, number: int) -> np.ndarray:
        """Where a field of a table is; 0 where it is left out."""
        distance = self.read(table, 4)
        layout = table - np.where(distance >= 1 << 31, distance - (1 << 32), distance)
        known = self.read(layout, 2) >= 6 + 2 * number
        entry = np.where(known, layout + 4 + 2 * number, layout)
        offset = np.where(known, self.read(entry, 2), 0)
        return np.where(offset > 0, table + offset, 0)
