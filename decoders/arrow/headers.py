"""Checks of IPC headers: decompressed size, and which messages are single batches."""

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
"""The narrowest column needs one bit per row, so more rows cannot have values."""
_CUT_SHORT: Final = "the message is truncated"


class NotArrow(ValueError):
    """The message is malformed or too large. The text quotes no message content."""

    def __init__(self, why: str, code: str = "malformed") -> None:
        super().__init__(why)
        self.code = code


@final
class PayloadScanner:
    """Validates the IPC messages of payloads by their headers. Not thread-safe.

    Args:
        limit: Maximum decompressed bytes of one payload.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._schema = b""
        """The last schema header that was read. Most payloads repeat it."""

    def kinds(self, data: memoryview) -> list[int]:
        """The kinds of the IPC messages, up to the end marker or the end of the data.

        Raises:
            NotArrow: A message is malformed or too large, or data follows the end.
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
                why = f"the decompressed message exceeds {self._limit} bytes"
                raise NotArrow(why, "too_large") from None
            total += size
            found.append(kind)
        if found != [ROWS]:
            why = "the stream is truncated" if found else "the message is empty"
            raise NotArrow(why)
        return found

    def _message(self, data: memoryview, at: int, limit: int) -> tuple[int, int, int]:
        """The kind of a message, its decompressed bytes, and its end offset."""
        start = at + PREFIX
        if start > len(data):
            raise NotArrow(_CUT_SHORT)
        length = header_length(data[at:start])
        body = start + length
        if body > len(data):
            raise NotArrow(_CUT_SHORT)
        if length == 0:
            why = "data follows the end-of-stream marker"
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
    """Decompressed bytes of a batch."""
    size = expanded(header, body, limit)
    if size > limit:
        raise IpcTooLong(size, limit)
    if header.rows > _ROWS_PER_BYTE * size:
        why = "a batch declares more rows than its bytes can hold"
        raise NotArrow(why)
    return size


# --- vectorized check of many payloads ----------------------------------------------


def plain_batches(
    starts: np.ndarray, lengths: np.ndarray, data: np.ndarray
) -> np.ndarray:
    """Which payloads are exactly one uncompressed record batch of consistent length.

    The vectorized form of `PayloadScanner`. A payload with anything unusual yields
    False and is left to that class.

    Args:
        starts: Offset of each payload.
        lengths: Length of each payload.
        data: The bytes of all payloads.
    """
    look = _HeaderReader(starts, lengths, data)
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


class _HeaderReader:
    """Reads little-endian numbers of a flatbuffer at one offset per payload."""

    def __init__(
        self, starts: np.ndarray, lengths: np.ndarray, data: np.ndarray
    ) -> None:
        self._starts, self._lengths = starts, lengths
        self._data = data if len(data) else np.zeros(1, np.uint8)
        self.right = lengths >= PREFIX
        """Payloads without a mismatch so far."""

    def read(self, at: np.ndarray, width: int) -> np.ndarray:
        """One number per payload. An offset outside of the payload clears `right`."""
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
        """The offset of a field of a flatbuffer table; 0 where it is absent."""
        distance = self.read(table, 4)
        layout = table - np.where(distance >= 1 << 31, distance - (1 << 32), distance)
        known = self.read(layout, 2) >= 6 + 2 * number
        entry = np.where(known, layout + 4 + 2 * number, layout)
        offset = np.where(known, self.read(entry, 2), 0)
        return np.where(offset > 0, table + offset, 0)
