"""The headers of many Arrow messages at once, read with numpy."""

from __future__ import annotations

import numpy as np

from streamfactory.arrowipc import PREFIX, ROWS, ROWS_PER_BYTE


def plain_batches(
    starts: np.ndarray, lengths: np.ndarray, data: np.ndarray
) -> np.ndarray:
    """Which payloads are exactly one uncompressed record batch of consistent length.

    A payload with anything unusual yields False: `read_header` is for it.

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
    look.right &= (count >= 0) & (count <= ROWS_PER_BYTE * size) & (compression == 0)
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
