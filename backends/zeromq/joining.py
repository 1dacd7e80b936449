"""Queue of received rows that were not returned yet; small batches are concatenated."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from streamfactory.live.messages import ENOUGH, TINY
from streamfactory.live.reading import Taken

if TYPE_CHECKING:
    from streamfactory.backends.zeromq.bodies import BatchReader
    from streamfactory.backends.zeromq.numbering import Placed
    from streamfactory.spi import Loss


@dataclass(slots=True)
class _Piece:
    """What one message contributed: rows, a loss, an end, or a move of the offset."""

    rows: pa.RecordBatch | None
    first: int
    next: int
    size: int = 0
    losses: list[Loss] = field(default_factory=list)
    is_checked: bool = False

    @property
    def count(self) -> int:
        """Its rows."""
        return 0 if self.rows is None else int(self.rows.num_rows)


class Backlog:
    """The rows of one partition, in order. One thread at a time.

    Args:
        reader: Validates batches before they are concatenated.
    """

    def __init__(self, reader: BatchReader) -> None:
        self._reader = reader
        self._pieces: deque[_Piece] = deque()
        self._losses: list[Loss] = []
        """Losses before the next received rows."""
        self.size = 0
        """Bytes."""
        self.next = 0
        """Offset of the next row to return."""
        self.has_begun = False
        """Whether rows of the current incarnation were returned."""

    def __len__(self) -> int:
        return len(self._pieces)

    def add(
        self,
        rows: pa.RecordBatch | None,
        placed: Placed,
        size: int,
        *,
        is_checked: bool = False,
    ) -> None:
        """Append what a message contributed."""
        losses, self._losses = self._losses, []
        piece = _Piece(rows, placed.first, placed.next, size, losses, is_checked)
        self._pieces.append(piece)
        self.size += size

    def lose(self, loss: Loss) -> None:
        """Record a loss before the next received rows."""
        self._losses.append(loss)

    def begin_after(self, loss: Loss, start: int) -> None:
        """Record a loss before all queued rows."""
        self._pieces.appendleft(_Piece(None, start, self.next, losses=[loss]))

    def clear(self, start: int, *, has_begun: bool) -> None:
        """Drop all rows; ``start`` becomes the next offset to return."""
        self._pieces.clear()
        self.size = 0
        self.next, self.has_begun = start, has_begun

    def take(self, most: int) -> Taken | None:
        """The first batches as one, as far as they can be concatenated.

        Returns:
            None if nothing was received.

        Raises:
            CorruptData: data_loss; the first batch is invalid.
            MessageTooLarge: permanent; a single row unpacks to too many bytes.
        """
        if not self._pieces:
            if not self._losses:
                return None
            # Report a loss even if no rows follow it.
            losses, self._losses = self._losses, []
            return Taken(None, self.next, self.next, 0, tuple(losses))
        first = self._pieces.popleft()
        pieces, size, rows = [first], first.size, first.count
        while self._pieces and first.rows is not None:
            after = self._pieces[0]
            joins = not after.losses and after.first == pieces[-1].next
            small = first.size < TINY and after.size < TINY and size < ENOUGH
            same = after.is_checked is first.is_checked and after.rows is not None
            if not (joins and small and same and rows < most):
                break
            pieces.append(self._pieces.popleft())
            size, rows = size + after.size, rows + after.count
        self.size -= size
        return self._joined(pieces, size)

    def _joined(self, pieces: list[_Piece], size: int) -> Taken:
        first = pieces[0]
        losses = tuple(first.losses)
        rows = first.rows
        if rows is None:
            self.next, self.has_begun = first.next, True
            return Taken(None, first.first, first.next, 0, losses)
        if not first.is_checked:
            sound = self._reader.validated([piece.rows for piece in pieces])
            self._return(pieces[sound:])
            pieces = pieces[:sound]
        if len(pieces) > 1:
            rows = pa.concat_batches([piece.rows for piece in pieces])
        if not first.is_checked:
            rows = self._sliced(rows, pieces, size)
        self.next, self.has_begun = first.first + rows.num_rows, True
        behind = self.next if rows.num_rows else pieces[-1].next
        return Taken(rows, first.first, behind, size, losses)

    def _sliced(
        self, rows: pa.RecordBatch, pieces: list[_Piece], size: int
    ) -> pa.RecordBatch:
        """The first slice that is safe to convert; the others are queued again."""
        parts = list(self._reader.parts(rows, size))
        at, rest = pieces[0].first + parts[0][0].num_rows if parts else 0, []
        for part, bytes_ in parts[1:]:
            rest.append(_Piece(part, at, at + part.num_rows, bytes_, is_checked=True))
            at += part.num_rows
        self._return(rest)
        return parts[0][0] if parts else rows

    def _return(self, pieces: list[_Piece]) -> None:
        self._pieces.extendleft(reversed(pieces))
        self.size += sum(piece.size for piece in pieces)
