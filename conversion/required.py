"""Values for required fields that only Arrow lets be null: those below a null.

A required field of a struct that is null has no value, and Arrow lets its array hold a
null there. Arrow's Parquet writer refuses such arrays, wherever the struct is.
"""

from __future__ import annotations

import pyarrow as pa

from streamfactory.spi.computing import pc


def fill_required(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows whose required fields have values in structs and lists that are null, too.

    Args:
        rows: No required field is null where what contains it is not.
    """
    for index, one in enumerate(rows.schema):
        if _has_required(one.type):
            rows = rows.set_column(index, one, _filled(rows.column(index)))
    return rows


def _has_required(kind: pa.DataType) -> bool:
    types = pa.types
    if types.is_map(kind):
        return _has_required(kind.item_type)
    if types.is_list(kind) or types.is_large_list(kind):
        return _has_required(kind.value_type)
    if types.is_struct(kind) or types.is_fixed_size_list(kind):
        fields = map(kind.field, range(kind.num_fields))
        return any(not one.nullable or _has_required(one.type) for one in fields)
    return False


def _filled(column: pa.Array) -> pa.Array:
    kind = column.type
    if not _has_required(kind):
        return column
    if pa.types.is_struct(kind):
        fields = list(kind)
        values = [_field_filled(column.field(n), one) for n, one in enumerate(fields)]
        mask = column.is_null() if column.null_count else None
        return pa.StructArray.from_arrays(values, fields=fields, mask=mask)
    if pa.types.is_map(kind):
        pairs = [column.keys, _field_filled(column.items, kind.item_field)]
        fields = [kind.key_field, kind.item_field]
        child: pa.Array = pa.StructArray.from_arrays(pairs, fields=fields)
    else:
        child = _field_filled(column.values, kind.value_field)
    own = 1 if pa.types.is_fixed_size_list(kind) else 2  # the validity, and offsets
    return pa.Array.from_buffers(
        kind,
        len(column),
        column.buffers()[:own],
        offset=column.offset,
        children=[child],
    )


def _field_filled(values: pa.Array, field: pa.Field) -> pa.Array:
    values = _filled(values)
    if field.nullable or not values.null_count:
        return values
    return _without_nulls(values)


def _without_nulls(values: pa.Array) -> pa.Array:
    """Values whose nulls are any value: what Parquet has below a null is no value."""
    kind = values.type
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, _without_nulls(values.storage))
    if pa.types.is_dictionary(kind):
        indices = _without_nulls(values.indices)
        return pa.DictionaryArray.from_arrays(
            indices, values.dictionary, ordered=kind.ordered, safe=False
        )
    if pa.types.is_struct(kind):
        parts = [values.field(n) for n in range(kind.num_fields)]
        return pa.Array.from_buffers(kind, len(values), [None], 0, children=parts)
    if pa.types.is_nested(kind):  # null lists may have elements: they are left out
        # Arrow's builders give the fields of null an empty value.
        empty = pa.array([None], pa.struct([pa.field("", kind, nullable=False)]))
        return pc.coalesce(values, empty.field(0)[0])
    # No function fills views, and of narrow decimals it makes others.
    buffers = [None, *values.buffers()[1:]]
    return pa.Array.from_buffers(kind, len(values), buffers, 0, values.offset)
