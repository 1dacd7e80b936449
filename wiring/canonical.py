"""The types that backends have to know: fewer than Arrow has."""

from __future__ import annotations

import pyarrow as pa


def canonical_schema(schema: pa.Schema) -> pa.Schema:
    """``schema`` in the types that sinks get, without metadata.

    No large, view and dictionary types, nested ones included; times in UTC.
    """
    return pa.schema([_field(field) for field in schema])


def _field(field: pa.Field) -> pa.Field:
    return pa.field(field.name, _type(field.type), nullable=field.nullable)


def _type(kind: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_dictionary(kind):
        return _type(kind.value_type)
    if types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if types.is_large_binary(kind) or types.is_binary_view(kind):
        return pa.binary()
    if types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, tz="UTC")
    if types.is_fixed_size_list(kind):
        return pa.list_(_field(kind.value_field), kind.list_size)
    if types.is_map(kind):
        return pa.map_(_field(kind.key_field), _field(kind.item_field))
    if _is_list(kind):
        return pa.list_(_field(kind.value_field))
    if types.is_struct(kind):
        return pa.struct([_field(field) for field in kind])
    return kind


def _is_list(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_list(kind)
        or types.is_large_list(kind)
        or types.is_list_view(kind)
        or types.is_large_list_view(kind)
    )
