"""Casts rows to exactly the declared schema, or reports the column (rule D4)."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, final

import pyarrow as pa

from streamfactory.spi import SchemaMismatch
from streamfactory.spi.computing import pc
from streamfactory.spi.soundness import can_rescale

if TYPE_CHECKING:
    from collections.abc import Callable

_NAMED: Final = 100
"""Maximum number of columns in a message."""


def check_names(schema: pa.Schema) -> None:
    """Refuse columns of the same name.

    Raises:
        SchemaMismatch: permanent; two columns have the same name.
    """
    names = schema.names
    if len(set(names)) == len(names):
        return
    twice = next(name for name in names if names.count(name) > 1)
    msg = f"the rows have {names.count(twice)} columns named {twice!r}"
    raise SchemaMismatch(msg, remedy="give each column its own name")


def check_columns(schema: pa.Schema) -> None:
    """Refuse rows without columns, or with columns of the same name.

    Raises:
        SchemaMismatch: permanent.
    """
    check_names(schema)
    if not schema.names:
        msg = "the rows have no columns"
        raise SchemaMismatch(msg, remedy="write at least one column")


def columns_of(schema: pa.Schema) -> str:
    """Return names and types of the first columns, for messages."""
    texts = [f"{field.name} {field.type}" for field in schema]
    more = len(texts) - _NAMED
    return ", ".join([*texts[:_NAMED], *([f"{more} more"] if more > 0 else [])])


def empty_rows(schema: pa.Schema) -> pa.RecordBatch:
    """Return an empty batch of any schema.

    ``RecordBatch.from_pylist`` refuses unions and dictionaries of times, and
    ``pa.nulls`` run-end encoded values within others (pyarrow 26).
    """
    columns = [_empty(field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _empty(kind: pa.DataType) -> pa.Array:
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, _empty(kind.storage_type))
    if not kind.num_fields or pa.types.is_dictionary(kind):
        return pa.nulls(0, kind)
    children = [_empty(kind.field(at).type) for at in range(kind.num_fields)]
    # All buffers but the first are offsets, sizes or types: one value of any width
    # fits.
    buffers = [None, *[pa.py_buffer(bytes(8))] * (kind.num_buffers - 1)]
    return pa.Array.from_buffers(kind, 0, buffers, children=children)


def conform(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return ``rows`` with the names, order, types and nullability of ``schema``.

    Columns are reordered, and cast if the cast is lossless.

    Raises:
        SchemaMismatch: permanent; a column is missing, unknown, of another type, or has
            nulls though it is not nullable.
    """
    return Conformer(schema).conform(rows)


@final
class Conformer:
    """Converts many batches to one schema. Thread-safe.

    Args:
        schema: The declared schema.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        """The schema of every result."""
        # Once: for a batch of a thousand rows it would be the greater part.
        self._required = [
            (index, field) for index, field in enumerate(schema) if not field.nullable
        ]
        self._fitting: _Fitting | None = None

    def conform(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Do as `conform`. Costs one comparison if the schemas are equal."""
        given = rows.schema
        if given.equals(self.schema, check_metadata=True):
            for index, field in self._required:
                _check_nulls(rows.column(index), field)
            return rows
        fitting = self._fitting  # of the last batch: another thread may exchange it
        if fitting is None or not fitting.given.equals(given, check_metadata=True):
            fitting = self._fitting = _Fitting(given, self.schema)
        return fitting.apply(rows)


class _Fitting:
    """How batches of one schema are converted to another.

    Raises:
        SchemaMismatch: permanent; no batch of this schema can be.
    """

    def __init__(self, given: pa.Schema, wanted: pa.Schema) -> None:
        self.given = given
        self._wanted = wanted
        _check_known(given.names, wanted)
        self._columns = [_conversion(given, field) for field in wanted]
        self._ordered = given.names == wanted.names
        self._differing = [
            (index, field)
            for index, field in enumerate(wanted if self._ordered else ())
            # The nulls of those that are not nullable are checked in any case.
            if not field.nullable
            or not field.equals(given.field(index), check_metadata=True)
        ]

    def apply(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        if not self._ordered:
            columns = [convert(rows) for convert in self._columns]
            return pa.RecordBatch.from_arrays(columns, schema=self._wanted)
        # To replace a few columns takes a fraction of what building a batch takes.
        for index, field in self._differing:
            rows = rows.set_column(index, field, self._columns[index](rows))
        if rows.schema.metadata != self._wanted.metadata:
            rows = rows.replace_schema_metadata(self._wanted.metadata)
        return rows


def _check_known(names: list[str], wanted: pa.Schema) -> None:
    unknown = [name for name in names if wanted.get_field_index(name) < 0]
    if not unknown:
        return
    msg = f"column {unknown[0]!r} is not in the declared schema"
    if len(unknown) > 1:
        more = len(unknown) - _NAMED
        listed = ", ".join(map(repr, unknown[:_NAMED]))
        listed += f" and {more} more" if more > 0 else ""
        msg = f"columns {listed} are not in the declared schema"
    raise SchemaMismatch(msg)


def _conversion(
    given: pa.Schema, field: pa.Field
) -> Callable[[pa.RecordBatch], pa.Array]:
    """Return what converts the column of a field."""
    found = given.get_all_field_indices(field.name)
    if len(found) > 1:
        msg = f"the rows have {len(found)} columns named {field.name!r}"
        raise SchemaMismatch(msg)
    if not found:
        if field.nullable:
            return lambda rows: pa.nulls(rows.num_rows, field.type)
        msg = f"column {field.name!r} is missing, but not nullable"
        raise SchemaMismatch(msg)
    (index,), kind = found, given.field(found[0]).type
    if kind == field.type:
        return lambda rows: _checked(rows.column(index), field)
    if _renames_zone(kind, field.type):
        return lambda rows: _checked(rows.column(index).view(field.type), field)
    return lambda rows: _checked(_cast(rows.column(index), field), field)


def _renames_zone(have: pa.DataType, want: pa.DataType) -> bool:
    """Whether only the names of time zones differ: the values are those of UTC."""
    if not (pa.types.is_timestamp(have) and pa.types.is_timestamp(want)):
        return False
    return bool(have.unit == want.unit and have.tz and want.tz)


def _checked(column: pa.Array, field: pa.Field) -> pa.Array:
    _check_nulls(column, field)
    return column


def _check_nulls(column: pa.Array, field: pa.Field) -> None:
    if field.nullable:
        return
    if pa.types.is_dictionary(column.type) and column.dictionary.null_count:
        column = _decoded(column)  # a null in the dictionary counts as well
    if column.null_count:
        msg = (
            f"column {field.name!r} is not nullable, but has {column.null_count} nulls"
        )
        raise SchemaMismatch(msg)


def _cast(column: pa.Array, field: pa.Field) -> pa.Array:
    reason, cause = _refusal(column.type, field.type), None
    if reason is None:
        try:
            return _safely(column, field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            reason, cause = str(error).splitlines()[0], error
    msg = f"column {field.name!r} is {column.type}, declared {field.type}: {reason}"
    raise SchemaMismatch(msg) from cause


def _safely(column: pa.Array, want: pa.DataType) -> pa.Array:
    have = column.type
    if pa.types.is_dictionary(have):
        if pa.types.is_dictionary(want) and have.index_type == want.index_type:
            with suppress(pa.ArrowInvalid):  # the value at fault may belong to no row
                values = _safely(column.dictionary, want.value_type)
                return _dictionary(column.indices, values, want)
        column = _decoded(column)
    if pa.types.is_dictionary(want):
        encoded = _safely(column, want.value_type).dictionary_encode()
        indices = _safely(encoded.indices, want.index_type)
        return _dictionary(indices, encoded.dictionary, want)
    if column.type == want:
        return column
    if _has_view(column.type):
        column = _unviewed(column)
    cast = column.cast(want, safe=True)
    if _narrowed(column, cast):
        msg = "some values have more digits"
        raise pa.ArrowInvalid(msg)
    return cast


def _has_view(kind: pa.DataType) -> bool:
    """Whether a type contains list views: Arrow's cast of them loses values."""
    if pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        return True
    return pa.types.is_nested(kind) and any(map(_has_view, _children(kind)))


def _unviewed(column: pa.Array) -> pa.Array:
    kind, mask = column.type, column.is_null()
    if not _has_view(kind):
        return column
    if pa.types.is_struct(kind):
        parts = [_unviewed(column.field(i)) for i in range(kind.num_fields)]
        return pa.StructArray.from_arrays(parts, names=kind.names, mask=mask)
    if pa.types.is_fixed_size_list(kind) or pa.types.is_map(kind):
        msg = f"views within {kind} cannot be cast"
        raise pa.ArrowNotImplementedError(msg)
    lengths = pc.fill_null(pc.list_value_length(column), 0).cast(pa.int64())
    ends = pc.cumulative_sum(lengths)
    offsets = pa.concat_arrays([pa.array([0], pa.int64()), ends])
    values = _unviewed(column.flatten())
    return pa.LargeListArray.from_arrays(offsets, values, mask=mask)


def _decoded(column: pa.Array) -> pa.Array:
    is_dictionary = pa.types.is_dictionary(column.type)
    return column.dictionary_decode() if is_dictionary else column


def _dictionary(indices: pa.Array, values: pa.Array, kind: pa.DataType) -> pa.Array:
    return pa.DictionaryArray.from_arrays(indices, values, ordered=kind.ordered)


def _refusal(have: pa.DataType, want: pa.DataType) -> str | None:
    """Return why a cast that Arrow regards as safe changes the meaning.

    Otherwise None.
    """
    if _ordered(want) and not _ordered(have):
        return "the order of its values is unknown"
    if pa.types.is_dictionary(have) or pa.types.is_dictionary(want):
        return _refusal(_values(have), _values(want))
    if pa.types.is_nested(have) and have.num_fields == want.num_fields:
        pairs = zip(_children(have), _children(want), strict=True)
        return next(filter(None, (_refusal(h, w) for h, w in pairs)), None)
    if pa.types.is_temporal(have) and _zoned(have) != _zoned(want):
        return "a timestamp without time zone is not in UTC"
    if _is_text(have) and not _is_text(want) and not _is_bytes(want):
        return "text is not parsed"
    numbers = [pa.types.is_integer(kind) for kind in (have, want)]
    if any(numbers) and (pa.types.is_temporal(have) or pa.types.is_temporal(want)):
        return "a number is not a timestamp"
    if pa.types.is_decimal(have) and pa.types.is_decimal(want):
        return None if can_rescale(have, want) else "their scales are too far apart"
    if pa.types.is_decimal(have) and pa.types.is_floating(want):
        return "a floating-point number is not an exact decimal"
    return None


def _values(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _children(kind: pa.DataType) -> list[pa.DataType]:
    return [kind.field(index).type for index in range(kind.num_fields)]


def _ordered(kind: pa.DataType) -> bool:
    return pa.types.is_dictionary(kind) and bool(kind.ordered)


def _zoned(kind: pa.DataType) -> bool:
    return getattr(kind, "tz", None) is not None


def _narrowed(column: pa.Array, cast: pa.Array) -> bool:
    # Arrow checks integers, but lets floating-point numbers lose digits.
    column, cast = _decoded(column), _decoded(cast)
    have, want = column.type, cast.type
    if have == want:
        return False
    if pa.types.is_nested(have):
        return any(map(_narrowed, _parts(column), _parts(cast)))
    if not (pa.types.is_floating(have) and pa.types.is_floating(want)):
        return False
    if have.bit_width <= want.bit_width:
        return False
    same = pc.or_(pc.equal(cast.cast(have), column), pc.is_nan(column))
    return pc.all(same).as_py() is False


def _parts(column: pa.Array) -> list[pa.Array]:
    """Return the child arrays of a column."""
    kind = column.type
    if pa.types.is_map(kind):
        column = column.cast(pa.list_(pa.struct([kind.key_field, kind.item_field])))
    parts = column.flatten()
    return parts if pa.types.is_struct(kind) else [parts]


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
