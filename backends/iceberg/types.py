"""Columns of a new Iceberg table."""

from __future__ import annotations

from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
)

from streamfactory.spi import SchemaMismatch
from streamfactory.spi.causes import first_line
from streamfactory.tables.columns import lacks_type

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_TYPES: Final = {
    pa.string(): StringType(),
    pa.int64(): LongType(),
    pa.int32(): IntegerType(),
    # Smaller ones are stored as int.
    pa.int16(): IntegerType(),
    pa.int8(): IntegerType(),
    pa.float32(): FloatType(),
    pa.float64(): DoubleType(),
    pa.bool_(): BooleanType(),
    pa.binary(): BinaryType(),
    pa.date32(): DateType(),
    pa.time64("us"): TimeType(),
    pa.timestamp("us", "UTC"): TimestamptzType(),
    pa.timestamp("us"): TimestampType(),
}
_DIGITS: Final = 38


def iceberg_schema(schema: pa.Schema) -> Schema:
    """The schema of a table with these columns; its ids are given by the catalog.

    Raises:
        SchemaMismatch: permanent; Iceberg lacks the type of a column, or allows no
            column of its name.
    """
    fields = _fields(schema, "", count(1))
    with checking_names():
        return Schema(*fields)


@contextmanager
def checking_names() -> Iterator[None]:
    """Refuse columns whose dotted paths are not distinct: ``a.b`` beside ``a``.

    Raises:
        SchemaMismatch: permanent.
    """
    try:
        yield
    except ValueError as error:
        what = f"an Iceberg table cannot have these columns: {first_line(error)}"
        remedy = "rename columns that have a dot in their names"
        raise SchemaMismatch(what, remedy=remedy) from error


def iceberg_type(field: pa.Field, parent: str) -> IcebergType:
    """The type of a field of a table; its ids are given by the library.

    Args:
        field: The field.
        parent: Path of the struct that has it, with a dot behind; empty for a column.

    Raises:
        SchemaMismatch: permanent; see `iceberg_schema`.
    """
    return _fields([field], parent, count(1))[0].field_type


def _fields(
    fields: Iterable[pa.Field], parent: str, ids: Iterator[int]
) -> list[NestedField]:
    found: list[NestedField] = []
    for field in fields:
        path = f"{parent}{field.name}"
        if not field.name or any(field.name == one.name for one in found):
            what = f"an Iceberg table has no column named {path!r}, or two of one name"
            raise SchemaMismatch(what, remedy="rename it")
        number = next(ids)
        kind = _type(field.type, path, ids)
        required = not field.nullable
        found.append(NestedField(number, field.name, kind, required=required))
    return found


def _type(kind: pa.DataType, path: str, ids: Iterator[int]) -> IcebergType:
    types = pa.types
    if kind in _TYPES:
        return _TYPES[kind]
    if types.is_decimal(kind) and 0 <= kind.scale <= kind.precision <= _DIGITS:
        return DecimalType(kind.precision, kind.scale)
    if types.is_fixed_size_binary(kind):
        return FixedType(kind.byte_width)
    if types.is_struct(kind):
        return StructType(*_fields(kind, f"{path}.", ids))
    if types.is_list(kind):
        inner = kind.value_field
        return ListType(
            element_id=next(ids),
            element_type=_type(inner.type, f"{path}.{inner.name}", ids),
            element_required=not inner.nullable,
        )
    if types.is_map(kind):
        return MapType(
            key_id=next(ids),
            key_type=_type(kind.key_type, f"{path}.key", ids),
            value_id=next(ids),
            value_type=_type(kind.item_type, f"{path}.value", ids),
            value_required=not kind.item_field.nullable,
        )
    refused = lacks_type("an Iceberg table", path, kind)
    raise refused
