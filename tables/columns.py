"""The columns that a table's stream has beside the table's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from streamfactory.spi import SchemaMismatch

if TYPE_CHECKING:
    from streamfactory.tables.table import Chunk, Commit, Piece

CHANGE: Final = "_change"
COMMIT: Final = "_commit"
COMMIT_TIME: Final = "_commit_time"

FIELDS: Final = (
    pa.field(CHANGE, pa.string(), nullable=False),
    pa.field(COMMIT, pa.string(), nullable=False),
    pa.field(COMMIT_TIME, pa.timestamp("us", tz="UTC")),
)
"""Kind of change, id of the commit, and when it was committed."""

NAMES: Final = tuple(field.name for field in FIELDS)


def stream_schema(table: pa.Schema, *, added: bool) -> pa.Schema:
    """The schema of a table's stream.

    Args:
        table: Columns of the table.
        added: Whether the change columns are there.

    Raises:
        SchemaMismatch: permanent; the table has a column of one of these names.
    """
    if not added:
        return table.remove_metadata()
    taken = [name for name in NAMES if name in table.names]
    if taken:
        what = f"the table has a column {taken[0]!r}, and so have the changes"
        raise SchemaMismatch(what, remedy="set change.columns=false, or rename it")
    return pa.schema([*table, *FIELDS])


def with_columns(
    chunk: Chunk, piece: Piece, commit: Commit, names: frozenset[str]
) -> pa.RecordBatch:
    """The rows of a chunk with those change columns that are wanted."""
    rows = chunk.rows
    count = rows.num_rows
    for field in FIELDS:
        if field.name not in names:
            continue
        if field.name == CHANGE and chunk.changes is not None:
            column = chunk.changes
        else:
            value = {
                CHANGE: piece.change,
                COMMIT: commit.id,
                COMMIT_TIME: None if commit.time_ms is None else commit.time_ms * 1000,
            }[field.name]
            column = pa.repeat(pa.scalar(value, field.type), count)
        rows = rows.append_column(field, column)
    return rows
