"""Conversion to the plain types that readers get.

Large, view and dictionary types become plain ones, at any depth, and zoned timestamps
become UTC. So files of different writers form one stream.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from streamfactory.spi.ddl import type_text

if TYPE_CHECKING:
    from collections.abc import Sequence


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """``schema`` in plain types, without metadata."""
    return pa.schema([_field(field) for field in schema])


def _field(field: pa.Field) -> pa.Field:
    return pa.field(field.name, plain_type(field.type), nullable=field.nullable)


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The plain type for the same values."""
    types = pa.types
    if types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if types.is_large_binary(kind) or types.is_binary_view(kind):
        return pa.binary()
    if types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, tz="UTC")
    if types.is_decimal64(kind):
        return pa.decimal128(kind.precision, kind.scale)
    if types.is_fixed_size_list(kind):
        return pa.list_(_field(kind.value_field), kind.list_size)
    if types.is_map(kind):
        return pa.map_(_field(kind.key_field), _field(kind.item_field))
    if types.is_list(kind) or types.is_large_list(kind) or _is_list_view(kind):
        return pa.list_(_field(kind.value_field))
    if types.is_struct(kind):
        return pa.struct([_field(field) for field in kind])
    return kind


def plain_rows(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Convert rows of any type to ``schema``, which has plain types."""
    if rows.schema.equals(schema, check_metadata=True):
        return rows
    columns = [plain(rows.column(field.name), field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def plain(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert a valid array to the plain type ``kind``."""
    have, types = array.type, pa.types
    if have == kind:
        return array
    if types.is_dictionary(have):
        return plain(array.dictionary, kind).take(array.indices)
    if not _needs_conversion(have):
        return array.cast(kind)
    mask = array.is_null() if array.null_count else None
    if types.is_struct(have):
        parts = [plain(array.field(i), kind.field(i).type) for i in range(len(kind))]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=mask)
    if types.is_fixed_size_list(have):
        size = have.list_size
        values = array.values.slice(array.offset * size, len(array) * size)
        values = plain(values, kind.value_type)
        return pa.FixedSizeListArray.from_arrays(values, type=kind, mask=mask)
    if types.is_map(have):
        offsets, keys, items = _used(array, array.keys, array.items)
        keys, items = plain(keys, kind.key_type), plain(items, kind.item_type)
        return pa.MapArray.from_arrays(offsets, keys, items, type=kind, mask=mask)
    if _is_list_view(have):  # Arrow's own cast of these loses values
        lengths = pc.fill_null(pc.list_value_length(array), 0).cast(pa.int64())
        ends = pc.cumulative_sum(lengths)
        offsets = pa.concat_arrays([pa.array([0], pa.int64()), ends])
        values = array.flatten()
    else:
        offsets, values = _used(array, array.values)
    values = plain(values, kind.value_type)
    offsets = offsets.cast(pa.int32())
    return pa.ListArray.from_arrays(offsets, values, type=kind, mask=mask)


def _used(array: pa.Array, *values: pa.Array) -> list[pa.Array]:
    """Offsets and used values of lists, which may be a slice."""
    offsets = array.offsets
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    offsets = pc.subtract(offsets, offsets[0])
    return [offsets, *(part.slice(first, last - first) for part in values)]


def difference(have: pa.Schema, want: pa.Schema) -> str | None:
    """The first difference between two plain schemas; None if rows fit."""
    names = set(have.names)
    if len(names) < len(have):
        return "it has two columns with the same name"
    for field in want:
        if field.name not in names:
            return f"it has no column {field.name!r}"
        found = have.field(field.name)
        if found.type != field.type:
            kinds = f"{type_text(found.type)}, not {type_text(field.type)}"
            return f"column {field.name!r} has the type {kinds}"
        if found.nullable and not field.nullable:
            return f"column {field.name!r} is nullable"
    extra = names.difference(want.names)
    first = next((name for name in have.names if name in extra), None)
    return None if first is None else f"it has the additional column {first!r}"


def _is_list_view(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind))


def _needs_conversion(kind: pa.DataType) -> bool:
    """Whether Arrow's cast of this type is wrong or missing."""
    if pa.types.is_dictionary(kind) or _is_list_view(kind):
        return True
    return any(map(_needs_conversion, _children(kind)))


def _children(kind: pa.DataType) -> Sequence[pa.DataType]:
    if not pa.types.is_nested(kind):
        return ()
    return [kind.field(index).type for index in range(kind.num_fields)]
