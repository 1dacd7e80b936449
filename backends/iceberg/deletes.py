"""Rows that files of position deletes mark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamfactory.spi import CorruptData, FormatRefused
from streamfactory.tables import MOST_MARKED, stream_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from streamfactory.tables import Piece, TableFiles

_ROWS: Final = 65_536
_COLUMNS: Final = ("file_path", "pos")


def targets(files: TableFiles, path: str) -> set[str]:
    """The data files whose rows a file of position deletes marks."""
    found: set[str] = set()
    for rows in _read(files, path):
        found.update(rows.column("file_path").unique().to_pylist())
    return found


def chosen_rows(
    files: TableFiles, piece: Piece, detail: dict[str, Any]
) -> tuple[NDArray[np.int64], bool] | None:
    """Which rows of a data file are rows of a piece; None means all.

    Args:
        files: Of the table.
        piece: Of the data file.
        detail: ``deletes``: paths of delete files; ``name``: of the data file in them;
            ``only``: whether the marked rows are wanted, rather than the others;
            ``before``: paths of earlier ones, whose rows are then left out.

    Returns:
        Numbers of rows, rising, and whether they are the rows wanted or the others.

    Raises:
        CorruptData: data_loss; a delete file is damaged, or marks a row that is not in
            the data file.
        FormatRefused: permanent; more rows are marked than can be held.
    """
    if not detail["deletes"]:
        return None
    marked = _marked(files, piece, detail["name"], detail["deletes"])
    if not detail["only"]:
        return marked, False
    # Writers merge delete files: a new one repeats what earlier ones mark.
    before = _marked(files, piece, detail["name"], detail["before"])
    return np.setdiff1d(marked, before, assume_unique=True), True


def _marked(
    files: TableFiles, piece: Piece, name: str, paths: Iterable[str]
) -> NDArray[np.int64]:
    """Numbers of the rows of a data file that delete files mark, rising.

    What is held depends on the rows that are marked, not on a count in the metadata.
    """
    found: list[NDArray[np.int64]] = [np.empty(0, np.int64)]
    held = 0
    for path in paths:
        for rows in _read(files, path):
            mine = pc.equal(rows.column("file_path"), name)
            at = rows.column("pos").filter(mine).to_numpy(zero_copy_only=False)
            if at.size and not 0 <= at.min() <= at.max() < piece.span:
                what = f"{path!r} marks a row that {piece.path!r} does not have"
                raise CorruptData(what)
            found.append(at)
            held += at.size
            if held > 2 * MOST_MARKED:
                found = [_distinct(found, piece)]
                held = found[0].size
    return _distinct(found, piece)


def _distinct(found: list[NDArray[np.int64]], piece: Piece) -> NDArray[np.int64]:
    rows = np.unique(np.concatenate(found))
    if rows.size > MOST_MARKED:
        what = f"more than {MOST_MARKED} rows of {piece.path!r} are marked as deleted"
        raise FormatRefused(what, remedy="compact the data files of the table")
    return rows


def _read(files: TableFiles, path: str) -> Iterator[pa.RecordBatch]:
    """Names and positions that a file of position deletes has.

    Raises:
        CorruptData: data_loss; it is no such file, or has a null.
    """
    for found in stream_rows(files, path, columns=_COLUMNS, skip=0, most=_ROWS):
        rows, types = found.rows, pa.types
        names = rows.schema.names
        sound = set(names) == set(_COLUMNS) and not any(c.null_count for c in rows)
        if sound:
            kind = rows.schema.field("file_path").type
            sound = types.is_string(kind) or types.is_large_string(kind)
            sound = sound and types.is_int64(rows.schema.field("pos").type)
        if not sound:
            what = f"{path!r} is no file of position deletes: file_path or pos is "
            what += "missing, null or of another type"
            raise CorruptData(what)
        yield rows
