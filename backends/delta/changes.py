"""Which rows a commit of a Delta table changed, by the actions of its log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from streamfactory.spi import FormatRefused
from streamfactory.spi.computing import pc
from streamfactory.tables import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streamfactory.backends.delta.actions import File, Vector

TYPE: Final = "_change_type"
"""Column of the change data feed: the kind of a row."""
_KINDS: Final = {
    "insert": INSERT,
    "update_preimage": UPDATE_BEFORE,
    "update_postimage": UPDATE_AFTER,
    "delete": DELETE,
}


class FileChange(NamedTuple):
    """Rows of a file that a commit changed."""

    file: File
    kind: str
    """Of the rows; `TYPE` where each row of the file has its own."""
    inside: Vector | None = None
    """Deletion vector of the rows that are meant; None means all."""
    outside: Vector | None = None
    """Deletion vector of rows that are left out."""


def file_changes(
    added: Sequence[File], removed: Sequence[File]
) -> Iterator[FileChange]:
    """Changes of a commit without files of the change data feed.

    A file that is both added and removed has another deletion vector: rows that only
    the new one marks were deleted, rows that only the old one marks were restored.
    """
    new = {one.path: one for one in added}
    old = {one.path: one for one in removed}
    for one in removed:
        if one.path not in new:
            yield FileChange(one, DELETE, outside=one.vector)
        elif after := new[one.path].vector:
            yield FileChange(one, DELETE, inside=after, outside=one.vector)
    for one in added:
        if one.path not in old:
            yield FileChange(one, INSERT, outside=one.vector)
        elif before := old[one.path].vector:
            yield FileChange(one, INSERT, inside=before, outside=one.vector)


def kinds_of(rows: pa.RecordBatch, path: str) -> pa.StringArray:
    """Kinds of the rows of a file of the change data feed.

    Raises:
        FormatRefused: permanent; a kind is not known.
    """
    column = rows.column(TYPE).cast(pa.string())
    codes = pc.index_in(column, pa.array(list(_KINDS), pa.string()))
    if codes.null_count:
        what = f"{path!r} has changes of an unknown kind"
        raise FormatRefused(what)
    return pa.array(list(_KINDS.values()), pa.string()).take(codes)
