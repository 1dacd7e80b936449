"""The data files of a table's stream, for programs that read them themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from streamfactory.arrowlog.values import StoredFile
from streamfactory.spi import CorruptData, DataLossError, OffsetOutOfRange, Unsupported
from streamfactory.tables.columns import NAMES, change_values, stream_schema
from streamfactory.tables.metadata import pieces
from streamfactory.tables.parquet import open_parquet
from streamfactory.tables.table import PieceGone, Stored

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from streamfactory.tables.filecolumns import FileColumns
    from streamfactory.tables.parquet import DataFile
    from streamfactory.tables.phase import Span
    from streamfactory.tables.places import TableFiles
    from streamfactory.tables.table import Commit, Piece, Table


@final
class StoredTable:
    """See `StoredRows`.

    Args:
        table: The table.
        added: Whether the change columns are part of the stream.
    """

    def __init__(self, table: Table, *, added: bool) -> None:
        self._table = table
        self._names = frozenset(NAMES if added else ())
        self.incarnation = table.identity()
        self.schema = stream_schema(table.schema(), added=added)

    def files(self, partition: int, start: int, end: int) -> Sequence[StoredFile]:
        """See `Log.files`."""
        found = [
            (self._stored(commit, span), span, commit, extent)
            for commit, span, extent in pieces(self._table, start, end)
        ]
        constants = _agreed(
            [
                {**file.constants, **self._changes(span.piece, commit)}
                for file, span, commit, _ in found
            ]
        )
        return [
            StoredFile(
                file.path,
                partition,
                span.start,
                extent.start,
                extent.end,
                file.rows,
                values,
            )
            for (file, span, _, extent), values in zip(found, constants, strict=True)
        ]

    def _stored(self, commit: Commit, span: Span) -> Stored:
        try:
            return self._table.stored(span.piece)
        except PieceGone as error:
            what = f"a file of commit {commit.id} was removed: {error}"
            remedy = OffsetOutOfRange.default_remedy
            raise DataLossError(what, offset=span.start, remedy=remedy) from error

    def _changes(self, piece: Piece, commit: Commit) -> Mapping[str, pa.Scalar]:
        values = change_values(piece, commit)
        return {name: values[name] for name in self._names}


def stored_piece(
    files: TableFiles,
    piece: Piece,
    columns_of: Callable[[DataFile], FileColumns],
    *,
    whole: bool,
) -> Stored:
    """`Table.stored` of a piece that is a Parquet file.

    Args:
        files: Of the table.
        piece: The piece.
        columns_of: Returns the columns of its file, which it checks.
        whole: Whether all rows of the file are rows of the piece, and of one kind.

    Raises:
        As `Table.stored`.
        CorruptData: data_loss; the file has other rows than its commit states.
    """
    if not whole:
        what = f"not all rows of {piece.path!r} are rows of the stream"
        raise Unsupported(what)
    with open_parquet(files, piece.path) as file:
        constants = columns_of(file).constants()
        if file.count > piece.span:
            what = f"file {piece.path!r} has {file.count} rows, not the {piece.span} "
            raise CorruptData(what + "that its commit states")
        return Stored(files.local(piece.path), file.count, constants)


def _agreed(files: Sequence[Mapping[str, pa.Scalar]]) -> list[dict[str, pa.Scalar]]:
    """Constants of files that all have the same columns.

    Raises:
        Unsupported: misuse; a column is stored in some of the files only.
    """
    common = frozenset.intersection(*map(frozenset, files)) if files else frozenset()
    for values in files:
        for name, value in values.items():
            # A column that a file lacks is null to other programs, too.
            if name not in common and value.is_valid:
                what = f"column {name!r} is stored in some files of the table only"
                raise Unsupported(what)
    return [{name: values[name] for name in common} for values in files]
