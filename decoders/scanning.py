"""A look at many messages at once, each at a place of its own.

What is bad is mostly so in its lengths and numbers. A walk over all messages in steps,
a step being one number of each, finds those without going through them one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from streamfactory.decoders.columns.buffers import offsets_of

if TYPE_CHECKING:
    import pyarrow as pa

    Rows = slice | np.ndarray

_MOST_BYTES: Final = 10
"""Of a number."""
_HIGHEST: Final = np.uint64(0x8080_8080_8080_8080)
"""The highest bit of each byte."""
_GATHER: Final = tuple(
    (np.uint64(shift), np.uint64(high), np.uint64(low))
    for shift, high, low in (
        (1, 0x7F00_7F00_7F00_7F00, 0x007F_007F_007F_007F),
        (2, 0xFFFF_0000_FFFF_0000, 0x0000_FFFF_0000_FFFF),
        (4, 0xFFFF_FFFF_0000_0000, 0x0000_0000_FFFF_FFFF),
    )
)
"""How eight times seven bits become 56: neighbours first, then pairs of them."""
_ONE: Final = np.uint64(1)


class Cursor:
    """Where each message is read, and which were found bad.

    Rows are given as their numbers, or as `ALL`. To leave out what is bad would cost
    more than to read it on: it is read from anywhere within itself, and stays bad.

    Args:
        values: binary.
    """

    ALL: Final = slice(None)
    """Every row."""

    def __init__(self, values: pa.Array) -> None:
        offsets = offsets_of(values).astype(np.int64)
        offsets -= offsets[0]
        self._at, self._ends = offsets[:-1].copy(), offsets[1:]
        self._data = _data(values, int(offsets[-1]))
        self._words = np.ndarray(
            len(self._data) - 7, np.dtype("<u8"), self._data, strides=(1,)
        )
        self.bad = np.zeros(len(values), bool)

    def more(self, rows: Rows) -> Rows:
        """The rows that are good so far, and not at their end."""
        left = (self._at[rows] < self._ends[rows]) & ~self.bad[rows]
        if left.all():
            return rows
        return np.flatnonzero(left) if isinstance(rows, slice) else rows[left]

    def those(self, rows: Rows, chosen: np.ndarray) -> Rows:
        """Some of the rows.

        Args:
            rows: The rows.
            chosen: For each of them, whether it is one.
        """
        if chosen.all():
            return rows
        return np.flatnonzero(chosen) if isinstance(rows, slice) else rows[chosen]

    def refuse(self, rows: Rows, wrong: np.ndarray) -> None:
        """Tell rows bad.

        Args:
            rows: The rows.
            wrong: For each of them, whether it is bad.
        """
        if wrong.any():
            self.bad[rows] |= wrong

    def pass_number(self, rows: Rows) -> None:
        """Go behind the number that each is at."""
        self._number(rows)

    def number(self, rows: Rows) -> np.ndarray:
        """The number that each is at, seven bits a byte."""
        at, words, length = self._number(rows)
        if length is None:
            return words
        found = words
        for shift, high, low in _GATHER:
            found = ((found & high) >> shift) | (found & low)
        for byte in (8, 9):
            long = np.flatnonzero(length > byte)
            if len(long):
                part = (self._data[at[long] + byte] & 0x7F).astype(np.uint64)
                found[long] |= part << np.uint64(7 * byte)
        return found

    def _number(self, rows: Rows) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Where each number was, its first eight bytes, and its length.

        No lengths where all are of one byte.
        """
        at = self._at[rows]
        first = self._data[at]
        if not (first & 0x80).any():
            self.skip(rows, 1)
            return at, first.astype(np.uint64), None
        at = at.copy()  # what is a part of all places is about to move
        words = self._words[at]
        # The last byte of a number has its highest bit clear.
        stops = ~words & _HIGHEST
        lowest = stops & (~stops + _ONE)
        inside = (lowest << _ONE) - _ONE
        length = (np.bitwise_count(inside) >> 3).astype(np.int64)
        endless = np.flatnonzero(stops == 0)
        if len(endless):
            length[endless] += 1
            for behind in (8, 9):
                on = length[endless] == behind + 1
                length[endless] += on & (self._data[at[endless] + behind] >= 0x80)
            self.refuse(rows, length > _MOST_BYTES)
        self.skip(rows, length)
        return at, words & inside, length

    def signed(self, rows: Rows) -> np.ndarray:
        """As `number`, of numbers in zigzag."""
        found = self.number(rows)
        half: np.ndarray = (found >> _ONE).astype(np.int64)
        half ^= -(found & _ONE).astype(np.int64)
        return half

    def skip(self, rows: Rows, lengths: np.ndarray | int) -> None:
        """Go on by so many bytes, where there are so many."""
        at = self._at[rows]
        left = self._ends[rows] - at
        wrong = (lengths > left) | (lengths < np.int64(0))
        if wrong.any():
            self.bad[rows] |= wrong
            lengths = np.where(wrong, 0, lengths)
        self._at[rows] = at + lengths

    def byte(self, rows: Rows) -> np.ndarray:
        """The byte that each is at."""
        found = self._data[self._at[rows]]
        self.skip(rows, 1)
        return found

    def finish(self, rows: Rows) -> None:
        """Refuse the rows that are not at their end."""
        self.refuse(rows, self._at[rows] != self._ends[rows])


def _data(values: pa.Array, length: int) -> np.ndarray:
    """The bytes of all values, and enough behind the last one to read a number."""
    buffer, first = values.buffers()[2], int(offsets_of(values)[0])
    data = np.frombuffer(buffer or b"", np.uint8)[first:]
    if len(data) >= length + 2 * _MOST_BYTES:
        return data
    return np.append(data[:length], np.zeros(2 * _MOST_BYTES, np.uint8))
