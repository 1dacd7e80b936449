"""A look at many messages at once, each at a place of its own.

What is bad is mostly so in its lengths and numbers. A walk over all messages in steps,
a step being one number of each, finds those without going through them one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from streamfactory.decoders.arrow_batches import places

if TYPE_CHECKING:
    import pyarrow as pa

_MOST_BYTES: Final = 10
"""Of a number."""
_HIGHEST: Final = np.uint64(0x8080_8080_8080_8080)
"""The highest bit of each byte."""


class Cursor:
    """Where each message is read, and which were found bad.

    Rows are given and answered as their numbers. A row that is found bad is left out
    of what is answered, and may not be given again.

    Args:
        values: binary.
    """

    def __init__(self, values: pa.Array) -> None:
        starts, lengths, data = places(values)
        self._at = starts.copy()
        self._ends = starts + lengths
        self._data = np.append(data, np.zeros(2 * _MOST_BYTES, np.uint8))
        self._words = np.ndarray(
            len(self._data) - 7, np.dtype("<u8"), self._data, strides=(1,)
        )
        self.bad = np.zeros(len(starts), bool)

    def all(self) -> np.ndarray:
        """Every row."""
        return np.arange(len(self._at))

    def more(self, rows: np.ndarray) -> np.ndarray:
        """The rows that are not at their end."""
        left: np.ndarray = rows[self._at[rows] < self._ends[rows]]
        return left

    def refuse(self, rows: np.ndarray, right: np.ndarray) -> np.ndarray:
        """The rows that are right; the others are bad."""
        if right.all():
            return rows
        self.bad[rows[~right]] = True
        kept: np.ndarray = rows[right]
        return kept

    def pass_number(self, rows: np.ndarray) -> np.ndarray:
        """Go behind the number that each is at; rows that have one."""
        return self._number(rows)[2]

    def number(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The number that each is at, seven bits a byte, and the rows that have one."""
        at, length, rows = self._number(rows)
        found = np.zeros(len(rows), np.uint64)
        for byte in range(int(length.max(initial=0))):
            here = slice(None) if byte < 1 else np.flatnonzero(length > byte)
            part = (self._data[at[here] + byte] & 0x7F).astype(np.uint64)
            found[here] |= part << np.uint64(7 * byte)
        return found, rows

    def _number(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Where each number is, how long, and the rows that have one."""
        at = self._at[rows]
        length = self._data[at] >> 7
        length = length.astype(np.int64)
        # The last byte of a number has its highest bit clear.
        more = np.flatnonzero(length)
        if len(more):
            stops = ~self._words[at[more]] & _HIGHEST
            lowest = stops & (~stops + np.uint64(1))
            length[more] = np.bitwise_count(lowest - np.uint64(1)) // 8
            for behind in (8, 9):
                long = more[length[more] == behind]
                length[long] += self._data[at[long] + behind] >> 7
        length += 1
        right = (at + length <= self._ends[rows]) & (length <= _MOST_BYTES)
        self._at[rows] = np.where(right, at + length, at)
        kept = self.refuse(rows, right)
        if len(kept) < len(rows):
            at, length = at[right], length[right]
        return at, length, kept

    def signed(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """As `number`, of numbers in zigzag."""
        found, rows = self.number(rows)
        half = (found >> np.uint64(1)).astype(np.int64)
        return half ^ -(found & np.uint64(1)).astype(np.int64), rows

    def skip(self, rows: np.ndarray, lengths: np.ndarray | int) -> np.ndarray:
        """Go on by so many bytes; rows that have them."""
        left = self._ends[rows] - self._at[rows]
        right = (lengths <= left) & (lengths >= np.int64(0))
        self._at[rows] += np.where(right, lengths, 0)
        return self.refuse(rows, right)

    def byte(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The byte that each is at, and the rows that have one."""
        rows = self.skip(rows, 1)
        return self._data[self._at[rows] - 1], rows

    def finish(self, rows: np.ndarray) -> None:
        """Refuse the rows that are not at their end."""
        self.refuse(rows, self._at[rows] == self._ends[rows])
