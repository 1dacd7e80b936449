r"""Arrow values of every type as values that JSON has, for programs and people.

Nothing fails, and in JSON no two values of a type look alike:

====================  ==================================================================
whole numbers         numbers, also those beyond 2^53
floating numbers      the shortest number that reads back as the same value of the type;
                      ``"NaN"``, ``"Infinity"`` and ``"-Infinity"`` as text
decimals              text: all digits
text                  text; bytes that are not UTF-8 as ``\xff``
binary                base64 for programs, text with escapes for people
dates                 ``2024-01-31``; a year after 9999 has a ``+``, before 0 a ``-``
times of day          ``12:00:00.000``, with as many digits as the unit has
timestamps            ``2024-01-31T12:00:00.000``; with a zone: in UTC, and a ``Z``
durations, intervals  ISO 8601: ``P1DT2H3M4.500S``, ``-PT1S``, ``P1M-2DT0.000000003S``
lists                 arrays
structs               objects; with equal names: arrays of names and values
maps                  arrays of keys and values
unions                an object with one member, the name of the child
dictionaries, runs    their values
extension types       a UUID as such, others as what they are stored as
====================  ==================================================================
"""

from __future__ import annotations

import base64
import uuid
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from streamfactory.conversion.arrays import list_parts, run_places, union_parts
from streamfactory.spi.computing import pc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    Octets = Callable[[bytes], str]
    """What is shown of a binary value."""

_DIGITS: Final = {"s": 0, "ms": 3, "us": 6, "ns": 9}
_DAY: Final = 86_400


def plain_values(column: pa.Array, octets: Octets) -> list[Any]:
    """The values: None, bool, int, float, str, and lists and dicts of them.

    Args:
        column: Of any type.
        octets: What is shown of a binary value.
    """
    values = _values(column, octets)
    if column.null_count:
        for index in pc.indices_nonzero(column.is_null()).to_pylist():
            values[index] = None
    return values


def encode_base64(value: bytes) -> str:
    """Binary for programs."""
    return base64.b64encode(value).decode("ascii")


def decode_leniently(value: bytes) -> str:
    """Binary for people: the text that it is, bytes that are no text as escapes."""
    return value.decode(errors="backslashreplace")


def plain_members(
    names: Sequence[str], columns: Iterable[pa.Array], count: int, octets: Octets
) -> list[Any]:
    """Rows or structs, as `plain_values` shows them."""
    parts = [plain_values(column, octets) for column in columns]
    rows: Iterable[tuple[Any, ...]] = (
        zip(*parts, strict=True) if parts else [()] * count
    )
    if len(set(names)) == len(names):
        return [dict(zip(names, row, strict=True)) for row in rows]
    return [[list(pair) for pair in zip(names, row, strict=True)] for row in rows]


def _values(column: pa.Array, octets: Octets) -> list[Any]:
    """As `plain_values`; anything where the value is null."""
    kind, types = column.type, pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return _of_extension(column, octets)
    if types.is_null(kind):
        return [None] * len(column)
    if types.is_dictionary(kind):
        values = [*plain_values(column.dictionary, octets), None]
        return [values[at] for at in column.indices.fill_null(-1).to_pylist()]
    if types.is_run_end_encoded(kind):
        values = plain_values(column.values, octets)
        return [values[at] for at in run_places(column)]
    if types.is_union(kind):
        return _of_union(column, octets)
    if types.is_struct(kind):
        fields = [column.field(index) for index in range(kind.num_fields)]
        names = [field.name for field in kind]
        return plain_members(names, fields, len(column), octets)
    if types.is_nested(kind):
        return _of_lists(column, octets)
    return _of_scalars(column, octets)


def _of_scalars(column: pa.Array, octets: Octets) -> list[Any]:
    kind, types = column.type, pa.types
    if types.is_floating(kind):
        return _of_floats(column)
    if types.is_boolean(kind) or types.is_integer(kind):
        return list(column.to_pylist())
    if types.is_decimal(kind):
        return [str(value) for value in column.to_pylist()]
    if types.is_interval(kind):
        parts = ((value or (0, 0, 0)) for value in column.to_pylist())
        return [_interval(*part) for part in parts]
    if types.is_temporal(kind):
        show = _temporal(kind)
        number = pa.int32() if kind.bit_width == 32 else pa.int64()
        return [show(value or 0) for value in column.view(number).to_pylist()]
    if types.is_string(kind):
        binary = column.view(pa.binary())  # no cast: that imports `pyarrow.compute`
    elif types.is_fixed_size_binary(kind):
        binary = column
    else:
        binary = column.cast(pa.large_binary())
    is_text = types.is_string(kind) or types.is_large_string(kind)
    show_octets = octets
    if is_text or types.is_string_view(kind):
        show_octets = decode_leniently
    return [show_octets(value or b"") for value in binary.to_pylist()]


def _of_floats(column: pa.Array) -> list[Any]:
    if column.type.bit_width < 64:
        # Half floats too: numpy writes 65504 of them as 65500.
        single = column.cast(pa.float32()).fill_null(0).to_numpy()
        values = [float(str(value)) for value in single]
    else:
        values = column.fill_null(0).to_pylist()
    return [value if value - value == 0 else _not_finite(value) for value in values]


def _not_finite(value: float) -> str:
    if value != value:  # noqa: PLR0124 - only NaN differs from itself
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _of_lists(column: pa.Array, octets: Octets) -> list[Any]:
    lengths, values = list_parts(column)
    if pa.types.is_map(column.type):
        parts = (plain_values(values.field(index), octets) for index in (0, 1))
        items: list[Any] = [list(pair) for pair in zip(*parts, strict=True)]
    else:
        items = plain_values(values, octets)
    edges = accumulate(lengths.tolist(), initial=0)
    return [items[at:end] for at, end in pairwise(edges)]


def _of_union(column: pa.Array, octets: Octets) -> list[Any]:
    kind = column.type
    names = [field.name for field in kind]
    if len(set(names)) < len(names):
        names = [str(code) for code in kind.type_codes]
    found: list[Any] = [None] * len(column)
    for index, rows, values in union_parts(column):
        for row, value in zip(rows, plain_values(values, octets), strict=True):
            found[row] = {names[index]: value}
    return found


def _of_extension(column: pa.Array, octets: Octets) -> list[Any]:
    storage = column.storage
    if isinstance(column.type, pa.UuidType):
        return [
            str(uuid.UUID(bytes=value or bytes(16))) for value in storage.to_pylist()
        ]
    return plain_values(storage, octets)


# --- times ----------------------------------------------------------------------


def _temporal(kind: pa.DataType) -> Callable[[int], str]:
    """How the number of a time is written."""
    types = pa.types
    if types.is_date32(kind):
        return _date
    if types.is_date64(kind):
        return lambda number: _timestamp(number, 3).removesuffix("T00:00:00.000")
    digits = _DIGITS[kind.unit]
    if types.is_duration(kind):
        return lambda number: _duration(number, digits)
    if types.is_time(kind):
        return lambda number: _sign(number) + _clock(abs(number), digits)
    zone = "" if kind.tz is None else "Z"
    return lambda number: _timestamp(number, digits) + zone


def _sign(number: int) -> str:
    return "-" if number < 0 else ""


def _fraction(number: int, digits: int) -> tuple[int, str]:
    """Whole seconds, and the text of the rest; the number is not negative."""
    seconds, rest = divmod(number, 10**digits)
    return seconds, f".{rest:0{digits}}" if digits else ""


def _clock(number: int, digits: int) -> str:
    seconds, rest = _fraction(number, digits)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{seconds:02}{rest}"


def _timestamp(number: int, digits: int) -> str:
    days, time = divmod(number, _DAY * 10**digits)
    return f"{_date(days)}T{_clock(time, digits)}"


def _date(days: int) -> str:
    """A day since 1970 in the Gregorian calendar, of whatever year.

    Years of 400 repeat, and begin in March here, so that a leap day is the last one.
    """
    cycle, day = divmod(days + 719_468, 146_097)
    year = (day - day // 1460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    day -= (153 * month + 2) // 5 - 1
    year += cycle * 400 + (month >= 10)
    month += 3 if month < 10 else -9
    sign = _sign(year) if year <= 9999 else "+"
    return f"{sign}{abs(year):04}-{month:02}-{day:02}"


def _duration(number: int, digits: int) -> str:
    days, rest = divmod(abs(number), _DAY * 10**digits)
    hours, rest = divmod(rest, 3600 * 10**digits)
    minutes, rest = divmod(rest, 60 * 10**digits)
    seconds, fraction = _fraction(rest, digits)
    text = f"{days}D" if days else ""
    clock = f"{hours}H" if hours else ""
    clock += f"{minutes}M" if minutes else ""
    if rest or not (days or clock):
        clock += f"{seconds}{fraction}S"
    return f"{_sign(number)}P{text}" + (f"T{clock}" if clock else "")


def _interval(months: int, days: int, nanoseconds: int) -> str:
    seconds, fraction = _fraction(abs(nanoseconds), 9)
    return f"P{months}M{days}DT{_sign(nanoseconds)}{seconds}{fraction}S"
