"""Casts between types without children: which of them keep every value (rule D4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from streamfactory.spi.computing import pc
from streamfactory.spi.ddl import type_text
from streamfactory.spi.soundness import can_rescale
from streamfactory.spi.soundness.rescaling import rescale

if TYPE_CHECKING:
    from collections.abc import Callable

    Cast = Callable[[pa.Array], pa.Array]

_EXACT: Final = frozenset(
    {
        ("integer", "floating"),
        ("floating", "integer"),
        ("integer", "decimal"),
        ("decimal", "integer"),
        ("text", "bytes"),
        ("bytes", "text"),
        ("date", "timestamp"),
        ("timestamp", "date"),
    }
)
"""Pairs of families between which equal values exist."""
_INTEGERS: Final = pa.decimal128(20, 0)
"""A decimal type with all integers of 64 bits."""
_NUMBERS: Final = ("integer", "floating", "decimal")
_STAMPS: Final = ("timestamp", "zoned timestamp")


def leaf_refusal(have: pa.DataType, want: pa.DataType) -> str | None:
    """Return why no value of a type is a value of another; None if some are."""
    mine, other = family(have), family(want)
    if mine == "decimal" == other:
        return None if can_rescale(have, want) else "their scales are too far apart"
    if mine == other != "" or (mine, other) in _EXACT:
        return None
    if {mine, other} == {*_STAMPS}:
        return "a timestamp without time zone is not in UTC"
    if mine == "text":
        return "text is not parsed"
    if {mine, other} == {"floating", "decimal"}:
        return "a floating-point number is not an exact decimal"
    if any(a in _NUMBERS and b in _STAMPS for a, b in ((mine, other), (other, mine))):
        return "a number is not a timestamp"
    if mine and other == "text":
        return "values are not converted to text"
    return f"{type_text(have)} is not converted to {type_text(want)}"


def leaf_cast(have: pa.DataType, want: pa.DataType) -> Cast:
    """Return the cast between types for which `leaf_refusal` is None.

    It raises ``pyarrow.ArrowInvalid`` for a value that the other type does not have.
    """
    if pa.types.is_timestamp(have) and have.tz is not None and have.unit == want.unit:
        # Only the names of the zones differ: the values are those of UTC.
        return lambda column: column.view(want)
    if pa.types.is_decimal(have) and pa.types.is_decimal(want):
        return lambda column: rescale(column, want)
    if pa.types.is_integer(have) and pa.types.is_decimal(want):
        # Arrow refuses types with fewer digits than the largest integer, not values.
        return lambda column: rescale(column.cast(_INTEGERS), want)
    loss = _unchecked_loss(have, want)
    if loss is None:
        return lambda column: column.cast(want)

    def cast(column: pa.Array) -> pa.Array:
        found = column.cast(want)
        same = pc.equal(found.cast(have), column)
        if pa.types.is_floating(have):
            same = pc.or_(same, pc.is_nan(column))
        if pc.all(same).as_py() is False:
            raise pa.ArrowInvalid(loss)
        return found

    return cast


def _unchecked_loss(have: pa.DataType, want: pa.DataType) -> str | None:
    """Return what a cast loses that Arrow 26 does not check; otherwise None."""
    types = pa.types
    if types.is_timestamp(have) and types.is_date(want):
        return "some values have a time of day"
    narrows = types.is_floating(have) and have.bit_width > want.bit_width
    if types.is_floating(want) and (narrows or types.is_integer(have)):
        # Arrow checks integers but those of half floats.
        half = types.is_float16(want)
        return "some values have more digits" if narrows or half else None
    return None


def family(kind: pa.DataType) -> str:
    """Return what the values of a type are: a name of `FAMILIES`, or zoned timestamp.

    Empty for nested and unknown types.
    """
    types = pa.types
    if types.is_timestamp(kind):
        return "timestamp" if kind.tz is None else "zoned timestamp"
    for name, belongs in FAMILIES:
        if belongs(kind):
            return name
    return ""


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


FAMILIES: Final = (
    ("flag", pa.types.is_boolean),
    ("integer", pa.types.is_integer),
    ("floating", pa.types.is_floating),
    ("decimal", pa.types.is_decimal),
    ("text", _is_text),
    ("bytes", _is_bytes),
    ("date", pa.types.is_date),
    ("time", pa.types.is_time),
    ("duration", pa.types.is_duration),
    ("interval", pa.types.is_interval),
)
