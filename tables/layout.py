"""How an offset names a row of a table: commit, phase, row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from streamfactory.spi import Unsupported
from streamfactory.spi.positions import MAX_OFFSET


class Place(NamedTuple):
    """What an offset names."""

    commit: int
    """Ordinal of the commit."""
    snapshot: bool
    """Whether it is a row of the table as of that commit, rather than a change."""
    row: int
    """Number of the row, from 0, in the order of the pieces."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Offsets of one table format: 63 bits of commit, phase and row.

    ::

        commit (62 - row_bits bits) | phase (1 bit) | row (row_bits bits)

    Phase 0 holds the rows that a commit changed, phase 1 the rows of the table as of
    that commit. Offsets order by commit; most of them name no row (rule R8).

    Args:
        row_bits: Bits of the row number. Each format chooses as many as leave enough
            for its commits.
    """

    row_bits: int

    @property
    def most_rows(self) -> int:
        """Rows that one phase of one commit can have."""
        return 1 << self.row_bits

    def changes(self, commit: int, row: int = 0) -> int:
        """Offset of a changed row of a commit."""
        return self._offset(commit, 0, row)

    def snapshot(self, commit: int, row: int = 0) -> int:
        """Offset of a row of the table as of a commit."""
        return self._offset(commit, 1, row)

    def first(self, place: Place) -> int:
        """Offset of the first row of the phase that a place is in."""
        return self._offset(place.commit, int(place.snapshot), 0)

    def place(self, offset: int) -> Place:
        """What an offset names."""
        slot, row = divmod(offset, self.most_rows)
        commit, phase = divmod(slot, 2)
        return Place(commit, bool(phase), row)

    def _offset(self, commit: int, phase: int, row: int) -> int:
        offset = ((commit * 2 + phase) << self.row_bits) + row
        if row >= self.most_rows or not 0 <= offset <= MAX_OFFSET:
            what = f"row {row} of commit {commit} is beyond what an offset can name"
            raise Unsupported(what)
        return offset
