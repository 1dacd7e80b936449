"""Rows in exactly the declared schema, or an error that names the column (rule D4)."""

from __future__ import annotations

import pyarrow as pa

from streamfactory.spi import SchemaMismatch


def conform(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """``rows`` with the names, order, types and nullability of ``schema``.

    Costs a comparison when they fit already. Otherwise columns are put in order and
    cast where nothing can be lost.

    Raises:
        SchemaMismatch: permanent; a column is missing, unknown, of another type, or
            has nulls that it may not have.
    """
    if rows.schema.equals(schema):
        return rows
    names = rows.schema.names
    unknown = [name for name in names if schema.get_field_index(name) < 0]
    if unknown:
        msg = f"column {unknown[0]!r} is not in the declared schema"
        raise SchemaMismatch(msg)
    columns = [_column(rows, field) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(rows: pa.RecordBatch, field: pa.Field) -> pa.Array:
    index = rows.schema.get_field_index(field.name)
    if index < 0:
        if field.nullable:
            return pa.nulls(rows.num_rows, field.type)
        msg = f"column {field.name!r} is missing, and may not be null"
        raise SchemaMismatch(msg)
    column = rows.column(index)
    if column.type != field.type:
        column = _cast(column, field)
    if not field.nullable and column.null_count:
        msg = f"column {field.name!r} has {column.null_count} nulls, and may have none"
        raise SchemaMismatch(msg)
    return column


def _cast(column: pa.Array, field: pa.Field) -> pa.Array:
    lossy = pa.types.is_timestamp(column.type) and (
        (column.type.tz is None) != (getattr(field.type, "tz", None) is None)
    )
    try:
        if lossy:  # Arrow would take a local time for UTC without a word
            msg = "a time without zone is not a time in UTC"
            raise pa.ArrowInvalid(msg)
        return column.cast(field.type, safe=True)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        reason = str(error).splitlines()[0]
        msg = f"column {field.name!r} is {column.type}, declared {field.type}: {reason}"
        raise SchemaMismatch(msg) from error
