"""The types that backends have to know: fewer than Arrow has."""

from __future__ import annotations

import pyarrow as pa


def canonical_schema(schema: pa.Schema) -> pa.Schema:
    """``schema`` without metadata, large and view types, and with times in UTC."""
    return pa.schema([_field(field) for field in schema])


def _field(field: pa.Field) -> pa.Field:
    return pa.field(field.name, _type(field.type), nullable=field.nullable)


def _type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, tz="UTC")
    if pa.types.is_large_list(kind) or pa.types.is_list(kind):
        return pa.list_(_field(kind.value_field))
    if pa.types.is_struct(kind):
        return pa.struct([_field(field) for field in kind])
    return kind
