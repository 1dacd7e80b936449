"""Fits the columns of a frame to those of a topic, as expressions of Spark.

Rows that Spark's own Parquet writer stores must be the rows that the sink in Python
would have stored: what cannot be made so is refused before a row is written.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - as Spark's documentation has it
from pyspark.sql import types as T  # noqa: N812 - the same

from streamfactory.spark.types import spark_schema
from streamfactory.spi import SchemaMismatch

if TYPE_CHECKING:
    from pyspark.sql import Column

_REMEDY: Final = 'write it with format("streamfactory")'
_PLAIN: Final = frozenset(
    {
        pa.bool_(),
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
        *(pa.float32(), pa.float64(), pa.date32()),
        *(pa.string(), pa.binary()),
        *(pa.timestamp("us"), pa.timestamp("us", "UTC")),
    }
)
_WIDER: Final[tuple[tuple[type[T.DataType], ...], ...]] = (
    (T.ByteType, T.ShortType, T.IntegerType, T.LongType),
    (T.FloatType, T.DoubleType),
)
"""Types that are cast to those behind them, which have all their values."""


def check_stored(schema: pa.Schema) -> None:
    """Refuse a topic whose columns Spark's Parquet writer stores otherwise.

    Raises:
        SchemaMismatch: permanent; has the column.
    """
    for field in schema:
        if not _is_written(field):
            msg = f"column {field.name!r} of the type {field} is not what Spark's "
            msg += "Parquet writer stores"
            raise SchemaMismatch(msg, remedy=_REMEDY)
    for one, other in pairwise(sorted(schema.names, key=str.lower)):
        if one.lower() == other.lower():
            msg = f"columns {one!r} and {other!r} differ only in case, which Spark's "
            msg += "Parquet writer ignores"
            raise SchemaMismatch(msg, remedy=_REMEDY)


def _is_written(field: pa.Field, *, nullable: bool = True) -> bool:
    """Whether Arrow reads a column as the topic has it after Spark has written it."""
    kind, types = field.type, pa.types
    if field.nullable is not nullable:
        return False
    if types.is_map(kind):
        keys = _is_written(kind.key_field, nullable=False)
        return keys and not kind.keys_sorted and _is_written(kind.item_field)
    if types.is_list(kind):
        return _is_written(kind.value_field)
    if types.is_struct(kind):
        return bool(kind.num_fields) and all(map(_is_written, kind))
    if types.is_decimal128(kind):
        return bool(0 <= kind.scale <= kind.precision)
    return kind in _PLAIN


def fitted(rows: T.StructType, schema: pa.Schema) -> list[Column]:
    """Return the columns of a topic, from those of a frame by name.

    Args:
        rows: Schema of the frame; columns that it lacks are null.
        schema: Of the topic, checked by `check_stored`.

    Raises:
        SchemaMismatch: permanent; a column cannot be cast without a loss.
    """
    have = {field.name: field.dataType for field in rows}
    found = []
    for field in spark_schema(schema):
        want = field.dataType
        if field.name not in have:
            column = F.lit(None).cast(want)
        else:
            column = _valid(_cast(field.name, have[field.name], want), want)
        found.append(column.alias(field.name))
    return found


def quoted(name: str) -> Column:
    """Return the column with exactly this name."""
    return F.col("`" + name.replace("`", "``") + "`")


def _cast(name: str, have: T.DataType, want: T.DataType) -> Column:
    column = quoted(name)
    if _relaxed(have) == _relaxed(want):
        return column
    if isinstance(have, T.NullType) or _is_wider(have, want):
        return column.cast(want)
    if isinstance(have, T.StringType) and isinstance(want, T.StringType):
        return column.cast(want)  # of another collation
    msg = (
        f"column {name!r} is {have.simpleString()}, the topic has {want.simpleString()}"
    )
    raise SchemaMismatch(msg, remedy="cast the column of the frame")


def _is_wider(have: T.DataType, want: T.DataType) -> bool:
    if isinstance(have, T.DecimalType) and isinstance(want, T.DecimalType):
        digits = want.precision - want.scale - (have.precision - have.scale)
        return digits >= 0 and want.scale >= have.scale
    for kinds in _WIDER:
        if type(have) in kinds and type(want) in kinds:
            return kinds.index(type(have)) < kinds.index(type(want))
    return False


def _relaxed(kind: T.DataType) -> T.DataType:
    """The type with everything nullable, and without metadata."""
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(_relaxed(kind.elementType))
    if isinstance(kind, T.MapType):
        return T.MapType(_relaxed(kind.keyType), _relaxed(kind.valueType))
    if isinstance(kind, T.StructType):
        fields = [T.StructField(f.name, _relaxed(f.dataType)) for f in kind]
        return T.StructType(fields)
    return kind


def _valid(column: Column, kind: T.DataType) -> Column:
    """The column; Spark fails where text in it is not UTF-8, which readers refuse."""
    if not _has_text(kind):
        return column
    if isinstance(kind, T.ArrayType):
        inner: Any = kind.elementType
        return F.transform(column, lambda value: _valid(value, inner))
    if isinstance(kind, T.MapType):
        keys, values = kind.keyType, kind.valueType
        column = F.transform_keys(column, lambda key, _: _valid(key, keys))
        return F.transform_values(column, lambda _, value: _valid(value, values))
    if isinstance(kind, T.StructType):
        fields = [
            _valid(column.getField(f.name), f.dataType).alias(f.name) for f in kind
        ]
        return F.when(column.isNotNull(), F.struct(*fields))
    return F.validate_utf8(column)


def _has_text(kind: T.DataType) -> bool:
    if isinstance(kind, T.ArrayType):
        return _has_text(kind.elementType)
    if isinstance(kind, T.MapType):
        return _has_text(kind.keyType) or _has_text(kind.valueType)
    if isinstance(kind, T.StructType):
        return any(_has_text(field.dataType) for field in kind)
    return isinstance(kind, T.StringType)
