"""Types of columns that are read from text."""

from __future__ import annotations

import pyarrow as pa


def textual(schema: pa.Schema) -> pa.Schema:
    """Return types that text has, of which the schema's types can be made.

    Types without text remain: a decoder refuses them. Whether a column may be null is
    checked when the rows are converted.
    """
    return pa.schema([pa.field(field.name, _textual(field.type)) for field in schema])


def united(one: pa.Schema, other: pa.Schema) -> pa.Schema:
    """Return the columns of both, with types that have the values of both."""
    return pa.schema(_united_fields(list(one), list(other)))


def _textual(kind: pa.DataType) -> pa.DataType:
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return _textual(kind.storage_type)
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return _textual(kind.value_type)
    if types.is_string_view(kind):
        return pa.string()
    if types.is_binary_view(kind):
        return pa.binary()
    if types.is_decimal32(kind) or types.is_decimal64(kind):
        return pa.decimal128(kind.precision, kind.scale)
    if types.is_struct(kind):
        return pa.struct([field.with_type(_textual(field.type)) for field in kind])
    if types.is_map(kind):
        return pa.map_(_textual(kind.key_type), _textual(kind.item_type))
    if types.is_nested(kind) and not types.is_union(kind):
        return pa.list_(kind.value_field.with_type(_textual(kind.value_type)))
    return kind


def _united_fields(one: list[pa.Field], other: list[pa.Field]) -> list[pa.Field]:
    kinds = {field.name: field.type for field in other}
    names = {field.name for field in one}
    kept = [
        field.with_type(_united(field.type, kinds.get(field.name, field.type)))
        for field in one
    ]
    return kept + [field for field in other if field.name not in names]


def _united(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    types = pa.types
    if one == other:
        return one
    if types.is_struct(one) and types.is_struct(other):
        return pa.struct(_united_fields(list(one), list(other)))
    if types.is_list(one) and types.is_list(other):
        return pa.list_(_united(one.value_type, other.value_type))
    for wider in (pa.decimal128(38, 0), pa.decimal128(20, 0), pa.float64()):
        if wider in (one, other) and pa.int64() in (one, other):
            return wider
    if pa.date32() in (one, other) and pa.timestamp("us") in (one, other):
        return pa.timestamp("us")
    return pa.string()
