"""Mapping of Arrow types to Spark: types are widened, or refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import ArrayType, MapType, StructType

from streamfactory.spark.versions import IN_UTC
from streamfactory.spi import SchemaMismatch
from streamfactory.wiring.core.canonical import canonical_schema

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

_WIDER = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
    pa.time32("s"): pa.time64("ns"),
    pa.time32("ms"): pa.time64("ns"),
}
_DIGITS = 38
"""Maximum precision of a decimal in Spark."""


def spark_schema(schema: pa.Schema) -> StructType:
    """The schema of a DataFrame of these rows.

    Raises:
        SchemaMismatch: permanent; Spark has no type for a column.
    """
    plain = canonical_schema(schema)
    return from_arrow_schema(
        pa.schema([field.with_type(_type(field.type, field.name)) for field in plain]),
        prefer_timestamp_ntz=True,
    )


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark exchanges for such a DataFrame.

    Raises:
        SchemaMismatch: permanent; a value is a ``variant``, of which Spark makes a
            struct of two binaries that cannot be distinguished from others.
    """
    path = _variant_in(schema, "")
    if path is not None:
        msg = f"column {path!r} is of type variant, which streams do not have"
        remedy = "write to_json(column), or the values that are needed"
        raise SchemaMismatch(msg, remedy=remedy)
    return to_arrow_schema(schema, **IN_UTC)


def _variant_in(kind: DataType, path: str) -> str | None:
    """Return the dotted path of a variant within a type; None if there is none."""
    parts: list[tuple[str, DataType]] = []
    if isinstance(kind, StructType):
        parts = [(field.name, field.dataType) for field in kind]
    elif isinstance(kind, ArrayType):
        parts = [("element", kind.elementType)]
    elif isinstance(kind, MapType):
        parts = [("key", kind.keyType), ("value", kind.valueType)]
    elif kind.typeName() == "variant":
        return path
    found = (_variant_in(one, f"{path}.{name}".lstrip(".")) for name, one in parts)
    return next((one for one in found if one is not None), None)


def _type(kind: pa.DataType, name: str) -> pa.DataType:
    types = pa.types
    if kind in _WIDER:
        return _WIDER[kind]
    if types.is_timestamp(kind) and kind.unit != "us":
        return pa.timestamp("us", tz=kind.tz)
    if types.is_duration(kind) and kind.unit != "us":
        return pa.duration("us")
    if types.is_fixed_size_binary(kind):
        return pa.binary()
    if types.is_decimal(kind):
        return _decimal(kind, name)
    if isinstance(kind, pa.BaseExtensionType):
        return _type(kind.storage_type, name)
    if types.is_list(kind) or types.is_fixed_size_list(kind):
        field = kind.value_field
        return pa.list_(field.with_type(_type(field.type, name)))
    if types.is_struct(kind):
        return pa.struct([f.with_type(_type(f.type, name)) for f in kind])
    if types.is_map(kind):
        item = kind.item_field
        key = kind.key_field
        return pa.map_(
            key.with_type(_type(key.type, name)), item.with_type(_type(item.type, name))
        )
    try:
        from_arrow_schema(pa.schema([pa.field("x", kind)]), prefer_timestamp_ntz=True)
    except Exception as error:
        raise _unknown(kind, name) from error
    return kind


def _decimal(kind: pa.DataType, name: str) -> pa.DataType:
    """A Spark decimal: non-negative scale, not larger than the precision."""
    scale = max(0, kind.scale)
    precision = max(kind.precision + scale - kind.scale, scale)
    if precision > _DIGITS:
        raise _unknown(kind, name)
    return pa.decimal128(precision, scale)


def _unknown(kind: pa.DataType, name: str) -> SchemaMismatch:
    msg = f"column {name!r} has the type {kind}, which Spark does not support"
    remedy = "exclude the column: name the others in .schema(...)"
    return SchemaMismatch(msg, remedy=remedy)
