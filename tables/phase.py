"""Rows of one phase of one commit: its pieces, from some row on."""

from __future__ import annotations

from bisect import bisect_right
from contextlib import closing
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple, final

import pyarrow as pa
import pyarrow.compute as pc

from streamfactory.spi import CorruptData, DataLossError, OffsetOutOfRange
from streamfactory.tables.table import PieceGone

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from streamfactory.tables.layout import Place
    from streamfactory.tables.table import Chunk, Commit, Piece, Table


class Found(NamedTuple):
    """A chunk with its place in the stream."""

    chunk: Chunk
    piece: Piece
    commit: Commit
    start: int
    """Offset of its first row."""
    offsets: pa.Int64Array | None
    """Offset of each row; None where they are consecutive."""
    next_offset: int


class Span(NamedTuple):
    """The offsets of one piece."""

    start: int
    end: int
    piece: Piece


def spans(table: Table, commit: Commit, place: Place) -> list[Span]:
    """The pieces of a phase with their offsets, from the piece of a place on.

    Raises:
        DataLossError: data_loss; the commit is no longer listed, or a file that lists
            its rows was removed.
    """
    try:
        pieces = table.snapshot(commit) if place.snapshot else table.changes(commit)
    except PieceGone as error:
        what = f"the rows of commit {commit.id} cannot be listed: {error}"
        offset = table.layout.first(place) + place.row
        resume = table.layout.changes(commit.ordinal + 1)
        raise DataLossError(
            what,
            offset=offset,
            resume=resume,
            remedy=OffsetOutOfRange.default_remedy,
        ) from error
    ends = list(accumulate((piece.span for piece in pieces), initial=0))
    base = table.layout.first(place)
    # Refuses what an offset cannot name before any row is read.
    table.layout.changes(place.commit, max(0, ends[-1] - 1))
    first = max(0, bisect_right(ends, place.row) - 1)
    return [
        Span(base + ends[index], base + ends[index + 1], pieces[index])
        for index in range(first, len(pieces))
        if pieces[index].span
    ]


@final
class Phase:
    """Reads the rows of a phase, a chunk at a time. One thread; closed by its owner.

    Args:
        table: Of the commit.
        commit: Whose rows.
        place: The first row wanted.
        fields: Columns wanted; None means all.
        rows: Rows of a chunk at the most.
    """

    def __init__(
        self,
        table: Table,
        commit: Commit,
        place: Place,
        fields: Sequence[str] | None,
        rows: int,
    ) -> None:
        self._table = table
        self._commit = commit
        self._fields = fields
        self._rows = rows
        self.at = table.layout.first(place) + place.row
        """Offset of the next row."""
        self.behind = table.layout.changes(commit.ordinal + 1)
        """Where reading continues after the last row."""
        self._chunks = self._read(spans(table, commit, place), self.at)

    def next_rows(self) -> Found | None:
        """The next rows; None after the last.

        Raises:
            DataLossError: data_loss; a file was removed. ``resume`` is behind it.
            CorruptData: data_loss; a file has more rows than its commit states.
        """
        found = next(self._chunks, None)
        if found is not None:
            self.at = found.next_offset
        return found

    def close(self) -> None:
        """Close the open file."""
        self._chunks.close()

    def _read(self, wanted: Sequence[Span], start: int) -> Generator[Found]:
        for span in wanted:
            skip = max(0, start - span.start)
            try:
                chunks = self._table.read(span.piece, skip, self._fields, self._rows)
                with closing(chunks):
                    for chunk in chunks:
                        if chunk.rows.num_rows:
                            yield self._placed(chunk, span)
            except PieceGone as error:
                what = (
                    f"a file of commit {self._commit.id} was removed from the table's "
                )
                what += f"storage: {error}"
                raise DataLossError(
                    what,
                    offset=max(start, span.start),
                    resume=span.end,
                    remedy=OffsetOutOfRange.default_remedy,
                ) from error

    def _placed(self, chunk: Chunk, span: Span) -> Found:
        count = chunk.rows.num_rows
        if chunk.numbers is None:
            start, offsets = span.start + chunk.first, None
            last = start + count - 1
        else:
            offsets = pc.add(chunk.numbers, pa.scalar(span.start, pa.int64()))
            start, last = offsets[0].as_py(), offsets[-1].as_py()
        if last >= span.end:
            what = f"file {span.piece.path!r} has more rows than the "
            what += f"{span.piece.span} that commit {self._commit.id} states"
            raise CorruptData(what, offset=start)
        return Found(chunk, span.piece, self._commit, start, offsets, last + 1)
