"""Inference of schemas from samples, for review by a user."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from streamfactory.decoders.columns.buffers import has_byte
from streamfactory.decoders.columns.casting import Casting

if TYPE_CHECKING:
    from collections.abc import Callable

_TIMES: Final = (
    pa.date32(),
    pa.timestamp("us", "UTC"),
    pa.timestamp("us"),
    pa.string(),
)
_FEW: Final = 100
_DIGITS: Final = b"0123456789"


def declarable(rows: pa.Table, fits: Callable[[pa.Schema], bool]) -> pa.Schema:
    """The schema of inferred rows, restricted to types that can be declared.

    Columns with only nulls become text. A timestamp gets the first of date, UTC, no
    zone and text with which the sample decodes. Integers beyond 64 bits become
    decimals. All columns are nullable, because a sample cannot prove otherwise.

    Args:
        rows: The rows that a library inferred.
        fits: Whether the sample decodes with a schema of one column.
    """
    fields = []
    for field, column in zip(rows.schema, rows.columns, strict=True):
        numbers: list[pa.DataType] = [pa.float64()]
        if _is_beyond_integers(column.combine_chunks()):
            numbers = [pa.decimal128(20, 0), pa.decimal128(38, 0), *numbers]
        tried = [
            pa.field(field.name, _declarable(field.type, time, number))
            for number in numbers
            for time in _TIMES
        ]
        if any(one != tried[-1] for one in tried):
            tried = [one for one in tried if fits(pa.schema([one]))] or tried[-1:]
        fields.append(tried[0])
    return pa.schema(fields)


def fitting(texts: pa.RecordBatch) -> pa.Schema:
    """For each text column, the first type whose values keep all texts."""
    kinds = (
        pa.int64(),
        pa.decimal128(20, 0),
        pa.float64(),
        pa.bool_(),
        pa.date32(),
        pa.timestamp("us", "UTC"),
        pa.timestamp("us"),
    )
    fields, casting = [], Casting(exact=True)
    for name, column in zip(texts.schema.names, texts.columns, strict=True):
        first = column[:_FEW]  # most types that do not fit fail at once
        fits = (
            pa.field(name, kind)
            for kind in kinds
            if casting.fits(first, kind) and casting.fits(column, kind)
        )
        known = column.null_count < len(column)
        text = pa.field(name, pa.string())
        found = next(fits, text) if known else text
        if found.type == pa.float64() and not has_byte(column, *_DIGITS):
            found = text  # only words such as nan
        fields.append(found)
    return pa.schema(fields)


def _is_beyond_integers(column: pa.Array) -> bool:
    """Whether a double may have been an integer that 64 bits do not hold."""
    if pa.types.is_floating(column.type):
        return bool(pc.any(pc.greater(pc.abs(column), 2.0**53)).as_py())
    if pa.types.is_struct(column.type):
        return any(map(_is_beyond_integers, column.flatten()))
    return pa.types.is_list(column.type) and _is_beyond_integers(column.flatten())


def _declarable(
    kind: pa.DataType, times: pa.DataType, numbers: pa.DataType
) -> pa.DataType:
    is_ = pa.types
    if is_.is_struct(kind):
        members = [
            (field.name, _declarable(field.type, times, numbers)) for field in kind
        ]
        return pa.struct(members)
    if is_.is_list(kind):
        return pa.list_(_declarable(kind.value_type, times, numbers))
    if is_.is_timestamp(kind):
        return times
    if is_.is_floating(kind):
        return numbers
    return pa.string() if is_.is_time(kind) or is_.is_null(kind) else kind
