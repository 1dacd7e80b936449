"""Times of `time.precision.mode=structured`: structs of parts of calendar and clock."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

NAMES: Final = frozenset(
    f"io.debezium.time.Structured{word}"
    for word in ("Date", "Time", "Timestamp", "ZonedTime", "ZonedTimestamp")
)
"""Connect schemas of such values, but durations: their months have no length."""
PARTS: Final = pa.struct(
    [
        *((name, pa.int32()) for name in ("year", "month", "day")),
        *((name, pa.int32()) for name in ("hour", "minute", "second", "nanos")),
        ("offsetSeconds", pa.int32()),
        ("specialValue", pa.string()),
    ]
)
_PER_SECOND: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_EPOCH: Final = {"year": 1970, "month": 1, "day": 1}
_WIDTHS: Final = {"year": 4}
_DATE: Final = ("year", "month", "day")
_TIME: Final = ("hour", "minute", "second")


def from_parts(column: pa.Array, want: pa.DataType) -> pa.Array:
    """Dates, times or timestamps of their parts; times with a zone are those of UTC.

    Raises:
        ArrowInvalid: A part is missing or too large, the value is infinite, a column
            of times has another zone, or the column would round.
    """
    if pc.any(pc.is_valid(_part(column, "specialValue"))).as_py():
        msg = "a time is infinite"
        raise pa.ArrowInvalid(msg)
    types = pa.types
    date = _EPOCH if types.is_time(want) else {}
    time = dict.fromkeys(_TIME, 0) if types.is_date(want) else {}
    days = _joined("-", [_text(column, name, date.get(name)) for name in _DATE])
    clock = _joined(":", [_text(column, name, time.get(name)) for name in _TIME])
    seconds = _joined("T", [days, clock]).cast(pa.timestamp("s"))
    if seconds.null_count > column.null_count:
        msg = "a part of a time is missing"
        raise pa.ArrowInvalid(msg)
    if types.is_date(want):
        return seconds.cast(want)
    offset = pc.fill_null(_part(column, "offsetSeconds"), 0)
    if types.is_time(want) and pc.any(pc.not_equal(offset, 0)).as_py():
        msg = "a time of day is not that of UTC"
        raise pa.ArrowInvalid(msg)
    since = pc.subtract(seconds.cast(pa.int64()), offset)
    counted = pc.add_checked(
        pc.multiply_checked(since, _PER_SECOND[want.unit]), _fraction(column, want.unit)
    )
    if pa.types.is_time32(want):
        counted = counted.cast(pa.int32())
    return counted.cast(want)


def _part(column: pa.Array, name: str) -> pa.Array:
    """A part; null where the values have no such part."""
    if name in column.type.names:
        return pc.struct_field(column, name)
    return pa.nulls(len(column), PARTS.field(name).type)


def _text(column: pa.Array, name: str, instead: int | None) -> pa.Array:
    part = _part(column, name)
    if instead is not None:
        part = pc.if_else(column.is_valid(), instead, pa.scalar(None, pa.int32()))
    return pc.utf8_lpad(part.cast(pa.string()), _WIDTHS.get(name, 2), "0")


def _joined(separator: str, texts: list[pa.Array]) -> pa.Array:
    return pc.binary_join_element_wise(*texts, separator)


def _fraction(column: pa.Array, unit: str) -> pa.Array:
    """Nanoseconds of a second in a coarser unit."""
    nanos = pc.fill_null(_part(column, "nanos"), 0).cast(pa.int64())
    step = 1_000_000_000 // _PER_SECOND[unit]
    whole = pc.divide(nanos, step)
    inside = pc.and_(pc.greater_equal(nanos, 0), pc.less(nanos, 1_000_000_000))
    exact = pc.and_(inside, pc.equal(pc.multiply(whole, step), nanos))
    if not pc.all(exact).as_py():
        msg = f"nanoseconds of a time do not fit into the unit {unit}"
        raise pa.ArrowInvalid(msg)
    return whole
