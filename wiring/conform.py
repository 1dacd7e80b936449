"""Rows in exactly the declared schema, or an error that names the column (rule D4)."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from streamfactory.spi import SchemaMismatch


def conform(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """``rows`` with the names, order, types and nullability of ``schema``.

    Costs a comparison when they fit already. Otherwise columns are put in order and
    cast where nothing can be lost.

    Raises:
        SchemaMismatch: permanent; a column is missing, unknown, of another type, or
            has nulls that it may not have.
    """
    if rows.schema.equals(schema, check_metadata=True):
        for index, field in enumerate(schema):
            if not field.nullable:
                _check_nulls(rows.column(index), field)
        return rows
    names = rows.schema.names
    unknown = [name for name in names if schema.get_field_index(name) < 0]
    if unknown:
        msg = f"column {unknown[0]!r} is not in the declared schema"
        raise SchemaMismatch(msg)
    columns = [_column(rows, field) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(rows: pa.RecordBatch, field: pa.Field) -> pa.Array:
    found = rows.schema.get_all_field_indices(field.name)
    if len(found) > 1:
        msg = f"column {field.name!r} is there {len(found)} times"
        raise SchemaMismatch(msg)
    if not found:
        if field.nullable:
            return pa.nulls(rows.num_rows, field.type)
        msg = f"column {field.name!r} is missing, and may not be null"
        raise SchemaMismatch(msg)
    column = rows.column(found[0])
    if column.type != field.type:
        column = _cast(column, field)
    _check_nulls(column, field)
    return column


def _check_nulls(column: pa.Array, field: pa.Field) -> None:
    if not field.nullable and column.null_count:
        msg = f"column {field.name!r} has {column.null_count} nulls, and may have none"
        raise SchemaMismatch(msg)


def _cast(column: pa.Array, field: pa.Field) -> pa.Array:
    reason, cause = _refusal(column.type, field.type), None
    if reason is None:
        try:
            cast = column.cast(field.type, safe=True)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            reason, cause = str(error).splitlines()[0], error
        else:
            if not _narrowed(column, cast):
                return cast
            reason = "some of its numbers have more digits"
    msg = f"column {field.name!r} is {column.type}, declared {field.type}: {reason}"
    raise SchemaMismatch(msg) from cause


def _refusal(have: pa.DataType, want: pa.DataType) -> str | None:
    """Why a cast that Arrow takes for safe changes what is meant; None where not."""
    if pa.types.is_dictionary(have) or pa.types.is_dictionary(want):
        return _refusal(*(getattr(kind, "value_type", kind) for kind in (have, want)))
    if pa.types.is_nested(have) and have.num_fields == want.num_fields:
        pairs = zip(_children(have), _children(want), strict=True)
        return next(filter(None, (_refusal(h, w) for h, w in pairs)), None)
    if pa.types.is_temporal(have) and _zoned(have) != _zoned(want):
        return "a time without zone is not a time in UTC"
    if _is_text(have) and not _is_text(want) and not _is_bytes(want):
        return "text is not parsed"
    numbers = [pa.types.is_integer(kind) for kind in (have, want)]
    if any(numbers) and (pa.types.is_temporal(have) or pa.types.is_temporal(want)):
        return "a number is not a time"
    if pa.types.is_decimal(have) and pa.types.is_floating(want):
        return "a floating number has no exact decimals"
    return None


def _children(kind: pa.DataType) -> list[pa.DataType]:
    return [kind.field(index).type for index in range(kind.num_fields)]


def _zoned(kind: pa.DataType) -> bool:
    return getattr(kind, "tz", None) is not None


def _narrowed(column: pa.Array, cast: pa.Array) -> bool:
    # Arrow checks whole numbers, and lets floating ones lose digits.
    have, want = column.type, cast.type
    if not (pa.types.is_floating(have) and pa.types.is_floating(want)):
        return False
    if have.bit_width <= want.bit_width:
        return False
    same = pc.or_(pc.equal(cast.cast(have), column), pc.is_nan(column))
    return pc.all(same).as_py() is False


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_string_view(kind)
    )


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_binary_view(kind)
        or pa.types.is_fixed_size_binary(kind)
    )
