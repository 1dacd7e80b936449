"""The canonical types: the subset of Arrow's types that backends must support."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from streamfactory.conversion.arrays import is_list

if TYPE_CHECKING:
    from streamfactory.spi import StreamConfig


def declared_schema(
    config: StreamConfig, *, dictionaries: bool = False
) -> pa.Schema | None:
    """Return the option ``schema`` in canonical types; None without one."""
    if "schema" not in config:
        return None
    from streamfactory.spi.ddl import parse_ddl

    return canonical_schema(parse_ddl(config["schema"]), dictionaries=dictionaries)


def canonical_schema(schema: pa.Schema, *, dictionaries: bool = False) -> pa.Schema:
    """Return ``schema`` in canonical types, without metadata.

    No large and view types, nested ones included; times in UTC.

    Args:
        schema: Any schema.
        dictionaries: Whether dictionary types are kept, with canonical values;
            otherwise they are replaced by the type of their values.
    """
    return pa.schema([_field(field, dictionaries) for field in schema])


def _field(field: pa.Field, dictionaries: bool) -> pa.Field:
    kind = _type(field.type, dictionaries)
    return pa.field(field.name, kind, nullable=field.nullable)


def _type(kind: pa.DataType, dictionaries: bool) -> pa.DataType:
    types = pa.types
    if types.is_dictionary(kind):
        values = _type(kind.value_type, dictionaries)
        if not dictionaries:
            return values
        return pa.dictionary(kind.index_type, values, ordered=kind.ordered)
    if types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if types.is_large_binary(kind) or types.is_binary_view(kind):
        return pa.binary()
    if types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, tz="UTC")
    if types.is_fixed_size_list(kind):
        return pa.list_(_field(kind.value_field, dictionaries), kind.list_size)
    if types.is_map(kind):
        fields = (_field(f, dictionaries) for f in (kind.key_field, kind.item_field))
        return pa.map_(*fields)
    if is_list(kind):
        return pa.list_(_field(kind.value_field, dictionaries))
    if types.is_struct(kind):
        return pa.struct([_field(field, dictionaries) for field in kind])
    return kind
