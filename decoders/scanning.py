"""Vectorized reading of varints from many messages at once.

Bad messages mostly have bad lengths or numbers. A walk over all messages in steps of
one number each finds them without a Python loop over messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from streamfactory.decoders.columns.buffers import offsets_of

if TYPE_CHECKING:
    import pyarrow as pa

    Rows = slice | np.ndarray

_MOST_BYTES: Final = 10
"""Maximum bytes of a varint."""
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
"""Shifts that compact eight groups of seven bits to 56 bits, pairwise."""
_ONE: Final = np.uint64(1)


class Cursor:
    """A read position in each message, and the messages that were found bad.

    Rows are given by index, or as `ALL`. Bad rows stay in the walk, since excluding
    them costs more: their position stays within the message and they stay bad.

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
        """The rows that are good so far and not at their end."""
        left = (self._at[rows] < self._ends[rows]) & ~self.bad[rows]
        if left.all():
            return rows
        return np.flatnonzero(left) if isinstance(rows, slice) else rows[left]

    def those(self, rows: Rows, chosen: np.ndarray) -> Rows:
        """Select some of the rows.

        Args:
            rows: The rows.
            chosen: Mask over ``rows``.
        """
        if chosen.all():
            return rows
        return np.flatnonzero(chosen) if isinstance(rows, slice) else rows[chosen]

    def refuse(self, rows: Rows, wrong: np.ndarray) -> None:
        """Mark rows as bad.

        Args:
            rows: The rows.
            wrong: Mask over ``rows``.
        """
        if wrong.any():
            self.bad[rows] |= wrong

    def pass_number(self, rows: Rows) -> None:
        """Skip one number of each row."""
        self._number(rows)

    def number(self, rows: Rows) -> np.ndarray:
        """Read one varint of each row."""
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
        """The start of each number, its first eight bytes, and its length.

        The lengths are None if every number has one byte.
        """
        at = self._at[rows]
        first = self._data[at]
        if not (first & 0x80).any():
            self.skip(rows, 1)
            return at, first.astype(np.uint64), None
        at = at.copy()  # a view of `_at`, which `skip` changes
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
        """Read one zigzag-encoded number of each row."""
        found = self.number(rows)
        half: np.ndarray = (found >> _ONE).astype(np.int64)
        half ^= -(found & _ONE).astype(np.int64)
        return half

    def skip(self, rows: Rows, lengths: np.ndarray | int) -> None:
        """Advance by ``lengths`` bytes; rows with fewer bytes left become bad."""
        at = self._at[rows]
        left = self._ends[rows] - at
        wrong = (lengths > left) | (lengths < np.int64(0))
        if wrong.any():
            self.bad[rows] |= wrong
            lengths = np.where(wrong, 0, lengths)
        self._at[rows] = at + lengths

    def byte(self, rows: Rows) -> np.ndarray:
        """Read one byte of each row."""
        found = self._data[self._at[rows]]
        self.skip(rows, 1)
        return found

    def finish(self, rows: Rows) -> None:
        """Mark the rows that are not at their end as bad."""
        self.refuse(rows, self._at[rows] != self._ends[rows])


def _data(values: pa.Array, length: int) -> np.ndarray:
    """The bytes of all values, padded so that a number can be read at the end."""
    buffer, first = values.buffers()[2], int(offsets_of(values)[0])
    data = np.frombuffer(buffer or b"", np.uint8)[first:]
    if len(data) >= length + 2 * _MOST_BYTES:
        return data
    return np.append(data[:length], np.zeros(2 * _MOST_BYTES, np.uint8))
