"""Conversion of rows to a schema before they are encoded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from streamfactory.spi import SchemaMismatch
from streamfactory.spi.ddl import type_text

if TYPE_CHECKING:
    from collections.abc import Sequence


def fitted(rows: pa.RecordBatch, schema: pa.Schema) -> Sequence[pa.Array]:
    """The columns of a schema, in its order; missing nullable columns are filled.

    Raises:
        SchemaMismatch: permanent; a column is unknown, missing or null, or its values
            do not fit the schema's type.
    """
    unknown = set(rows.schema.names) - set(schema.names)
    if unknown:
        msg = f"column {min(unknown)!r} is not in the schema"
        raise SchemaMismatch(msg, remedy="drop or declare the column")
    return [_column(rows, field) for field in schema]


def _column(rows: pa.RecordBatch, field: pa.Field) -> pa.Array:
    at = rows.schema.get_field_index(field.name)
    if at < 0:
        if field.nullable:
            return pa.nulls(rows.num_rows, field.type)
        msg = f"column {field.name!r} is missing but not nullable"
        raise SchemaMismatch(msg)
    column = rows.column(at)
    if not field.nullable and column.null_count:
        msg = f"column {field.name!r} has {column.null_count} nulls but is not nullable"
        raise SchemaMismatch(msg)
    if column.type == field.type:
        return column
    if getattr(column.type, "tz", None) is None and getattr(field.type, "tz", None):
        msg = f"column {field.name!r} has timestamps without zone, the schema has UTC"
        raise SchemaMismatch(msg)
    try:
        return column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        kinds = f"{type_text(column.type)}, the schema has {type_text(field.type)}"
        msg = f"column {field.name!r} has the type {kinds}"
        raise SchemaMismatch(msg) from error
