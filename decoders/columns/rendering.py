"""Text of typed columns; `casting` is the inverse."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamfactory.decoders.columns.base64 import to_base64
from streamfactory.spi import SchemaMismatch
from streamfactory.spi.ddl import type_text

_FIRST: Final = -62_135_596_800
"""Seconds since 1970 at the start of year 1."""
_END: Final = 253_402_300_800
"""Seconds at the end of year 9999. ISO 8601 writes the years between with 4 digits."""
_DAY: Final = 86_400
"""Seconds."""
_PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def rendered(column: pa.Array, path: str) -> pa.StringArray:
    """The text of each value of a column that is not nested; null of null.

    Raises:
        SchemaMismatch: permanent; a value or the type has no text form.
    """
    kind = column.type
    is_ = pa.types
    if is_.is_dictionary(kind):
        return rendered(column.dictionary_decode(), path)
    if is_.is_null(kind) or is_.is_string(kind) or is_.is_large_string(kind):
        return column.cast(pa.string())
    if is_.is_binary(kind) or is_.is_large_binary(kind):
        return to_base64(column.cast(pa.binary()))
    if is_.is_fixed_size_binary(kind):
        return to_base64(column.cast(pa.binary()))
    if is_.is_date(kind):
        return _dates(column, path)
    if is_.is_timestamp(kind):
        return _times(column, path)
    if is_.is_floating(kind):
        # Print floats as floats: as doubles they would get more digits.
        wide = column.cast(pa.float32()) if kind.bit_width == 16 else column
        texts = wide.cast(pa.string())
        return pc.if_else(pc.equal(texts, "-0"), "-0.0", texts)
    if is_.is_time(kind):
        day = _DAY * _PER_SECOND[kind.unit]
        _check_range(column, 0, day, f"column {path!r} has times beyond 24 hours")
        return column.cast(pa.string())
    if is_.is_boolean(kind) or is_.is_integer(kind) or is_.is_decimal(kind):
        return column.cast(pa.string())
    msg = f"column {path!r} has the type {type_text(kind)}, which has no text form"
    raise SchemaMismatch(msg)


def listed(column: pa.Array, texts: pa.StringArray, separator: str) -> pa.StringArray:
    """The texts of the values of each list, joined by a separator.

    Args:
        column: Lists or maps.
        texts: The texts of all values, without nulls.
        separator: Separator of two values.
    """
    lengths = lengths_of(column)
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    mask = column.is_null() if column.null_count else None
    lists = pa.ListArray.from_arrays(offsets, texts, mask=mask)
    return pc.binary_join(lists, separator)


def lengths_of(column: pa.Array) -> np.ndarray:
    """Number of values of each list or map; 0 for null."""
    if pa.types.is_map(column.type):
        column = as_lists(column)
    return np.asarray(pc.fill_null(pc.list_value_length(column), 0))


def as_lists(column: pa.MapArray) -> pa.ListArray:
    """Maps as lists of their entries."""
    kind = column.type
    return column.cast(pa.list_(pa.struct([kind.key_field, kind.item_field])))


def _dates(column: pa.Array, path: str) -> pa.StringArray:
    if pa.types.is_date64(column.type):
        try:
            column = column.cast(pa.date32())
        except pa.ArrowInvalid as error:
            msg = f"column {path!r} has dates with a time of day"
            raise SchemaMismatch(msg, remedy="cast it to a timestamp") from error
    _check_years(column, _FIRST // _DAY, _END // _DAY, path)
    return column.cast(pa.string())


def _times(column: pa.Array, path: str) -> pa.StringArray:
    each = _PER_SECOND[column.type.unit]
    _check_years(column, _FIRST * each, _END * each, path)
    if column.type.tz is not None:
        column = column.cast(pa.timestamp(column.type.unit, "UTC"))
    return pc.replace_substring(column.cast(pa.string()), " ", "T", max_replacements=1)


def _check_years(column: pa.Array, first: int, end: int, path: str) -> None:
    _check_range(column, first, end, f"column {path!r} has years outside of 1 to 9999")


def _check_range(column: pa.Array, first: int, end: int, msg: str) -> None:
    """Refuse values that Arrow prints wrongly: its calendar arithmetic overflows."""
    number = pa.int32() if column.type.bit_width == 32 else pa.int64()
    bounds = pc.min_max(column.view(number)).as_py()
    if bounds["min"] is not None and not first <= bounds["min"] <= bounds["max"] < end:
        raise SchemaMismatch(msg, remedy="write numbers, or another format")
