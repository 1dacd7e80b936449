"""The columns that a table's stream has beside the table's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from streamfactory.conversion.leaves import family
from streamfactory.spi import SchemaMismatch
from streamfactory.spi.ddl import type_text

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


def change_values(piece: Piece, commit: Commit) -> dict[str, pa.Scalar]:
    """The values of the change columns in rows of one kind."""
    time_us = None if commit.time_ms is None else commit.time_ms * 1000
    values = (piece.change, commit.id, time_us)
    return {
        field.name: pa.scalar(value, field.type)
        for field, value in zip(FIELDS, values, strict=True)
    }


def with_columns(
    chunk: Chunk, piece: Piece, commit: Commit, names: frozenset[str]
) -> pa.RecordBatch:
    """The rows of a chunk with those change columns that are wanted."""
    rows = chunk.rows
    count = rows.num_rows
    values = change_values(piece, commit)
    for field in FIELDS:
        if field.name not in names:
            continue
        if field.name == CHANGE and chunk.changes is not None:
            column = chunk.changes
        else:
            column = pa.repeat(values[field.name], count)
        rows = rows.append_column(field, column)
    return rows


def lacks_type(format: str, path: str, kind: pa.DataType) -> SchemaMismatch:
    """The refusal of a column whose type tables of a format do not have.

    Args:
        format: With its article, as in "a Delta table".
        path: Of the column, with dots.
        kind: Its type.
    """
    remedy = "declare it with the option schema, or cast it, to"
    cast = _declarable(kind)
    if cast is None:  # no value is converted
        times = pa.types.is_time(kind) or pa.types.is_duration(kind)
        remedy, cast = "cast it to", "bigint" if times else "string"
    what = f"column {path!r} is {type_text(kind)}, which {format} does not have"
    return SchemaMismatch(what, remedy=f"{remedy} {cast}")


def _declarable(kind: pa.DataType) -> str | None:
    """The declared type to which values of a type are converted; None if there is none.

    Args:
        kind: A type that tables do not have.
    """
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    types, found = pa.types, None
    if types.is_timestamp(kind):
        found = "timestamp" if kind.tz else "timestamp_ntz"
    elif types.is_unsigned_integer(kind):
        by_width = {8: "int", 16: "int", 32: "bigint"}
        found = by_width.get(kind.bit_width, "decimal(20,0)")
    elif hasattr(kind, "value_field"):  # a list of another kind
        found = "array<...>"
    else:
        by_family = {
            "integer": "int",
            "floating": "float",
            "text": "string",
            "bytes": "binary",
            "date": "date",
        }
        found = by_family.get(family(kind))
    return found
