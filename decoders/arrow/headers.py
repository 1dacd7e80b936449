"""How much a message may become, and which messages are batches alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import numpy as np

from streamfactory.spi.ipc import (
    END,
    PREFIX,
    ROWS,
    SCHEMA,
    IpcTooLong,
    NotIpc,
    expanded,
    header_length,
    read_header,
)

if TYPE_CHECKING:
    from streamfactory.spi.ipc import IpcHeader

_ROWS_PER_BYTE: Final = 8
"""The narrowest column has a bit a row: what has more rows has no values for them."""
_CUT_SHORT: Final = "the message is cut short"


class NotArrow(ValueError):
    """The message is none, or is too large. Says why, without a part of it."""

    def __init__(self, why: str, code: str = "malformed") -> None:
        super().__init__(why)
        self.code = code


@final
class Walk:
    """Looks at the messages within payloads.

    Args:
        limit: Bytes that those of a payload may have together, decompressed.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._schema = b""
        """The last schema that was looked at: most payloads repeat it."""

    def kinds(self, data: memoryview) -> list[int]:
        """The kind of each message, up to the mark of the end, or the end.

        Raises:
            NotArrow: One is malformed or too large, or something follows the end.
        """
        at = total = 0
        found: list[int] = []
        while at < len(data):
            if found and found[0] != SCHEMA:
                why = f"{len(data) - at} bytes follow the batch"
                raise NotArrow(why)
            if data[at:] == END:
                return found
            try:
                kind, size, at = self._message(data, at, self._limit - total)
            except NotIpc as error:
                raise NotArrow(str(error)) from error
            except IpcTooLong:
                allowed = f"the {self._limit} bytes that are allowed"
                why = f"the message becomes more than {allowed}"
                raise NotArrow(why, "too_large") from None
            total += size
            found.append(kind)
        if found != [ROWS]:
            why = "the stream is cut short" if found else "the message is empty"
            raise NotArrow(why)
        return found

    def _message(self, data: memoryview, at: int, limit: int) -> tuple[int, int, int]:
        """The kind of a message, its bytes decompressed, and where it ends."""
        start = at + PREFIX
        if start > len(data):
            raise NotArrow(_CUT_SHORT)
        length = header_length(data[at:start])
        body = start + length
        if body > len(data):
            raise NotArrow(_CUT_SHORT)
        if length == 0:
            why = "something follows the mark of the end"
            raise NotArrow(why)
        head = data[start:body]
        if head == self._schema:
            return SCHEMA, 0, body
        header = read_header(head)
        end = body + header.body
        if end > len(data):
            raise NotArrow(_CUT_SHORT)
        if header.kind == SCHEMA:
            self._schema = bytes(head)
            return SCHEMA, 0, body
        return header.kind, _size(header, data[body:end], limit), end


def _size(header: IpcHeader, body: memoryview, limit: int) -> int:
    """Bytes of a batch, decompressed."""
    size = expanded(header, body, limit)
    if size > limit:
        raise IpcTooLong(size, limit)
    if header.rows > _ROWS_PER_BYTE * size:
        why = "a batch announces more rows than it has bytes for"
        raise NotArrow(why)
    return size


# --- many at once -------------------------------------------------------------------


def plain_batches(
    starts: np.ndarray, lengths: np.ndarray, data: np.ndarray
) -> np.ndarray:
    """Which payloads are one batch without compression, of a length that fits.

    The same look as `Walk` has, by columns: whatever is unusual is left to it.

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
    root = PREFIX + look.read(zero + PREFIX, 4)
    kind, content, body = (look.field(root, number) for number in (1, 2, 3))
    look.right &= (kind > 0) & (content > 0) & (body > 0)
    look.right &= look.read(kind, 1) == ROWS
    size = look.read(body, 8)
    look.right &= (size >= 0) & (PREFIX + head + size == lengths)
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
        self.right = lengths >= PREFIX
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
