"""How Debezium and Kafka Connect encode values: times, decimals, intervals, geometries.

An `Encoding` has the Arrow type in which a value is decoded, and its conversion to the
type of the column. It is chosen by the name of the value's Connect schema, or, where
messages have no schema, by the options of the connector.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamfactory.decoders.columns.base64 import from_base64, from_hex
from streamfactory.decoders.columns.decimals import decimals
from streamfactory.decoders.columns.options import UNITS
from streamfactory.decoders.debezium import structured

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Convert = Callable[[pa.Array, pa.DataType], pa.Array]
    """Converts a column to a type; raises ArrowInvalid if a value does not fit."""

_DEBEZIUM: Final = "io.debezium.time."
_CONNECT: Final = "org.apache.kafka.connect.data."
_DAYS: Final = frozenset({f"{_DEBEZIUM}Date", f"{_CONNECT}Date"})
_UNITS: Final = {
    f"{_DEBEZIUM}Time": "ms",
    f"{_CONNECT}Time": "ms",
    f"{_DEBEZIUM}MicroTime": "us",
    f"{_DEBEZIUM}NanoTime": "ns",
    f"{_DEBEZIUM}Timestamp": "ms",
    f"{_CONNECT}Timestamp": "ms",
    f"{_DEBEZIUM}MicroTimestamp": "us",
    f"{_DEBEZIUM}NanoTimestamp": "ns",
    f"{_DEBEZIUM}MicroDuration": "us",
    f"{_DEBEZIUM}NanoDuration": "ns",
}
_ZONED: Final = frozenset(
    _DEBEZIUM + word
    for word in ("ZonedTimestamp", "ZonedTime", "IsoDate", "IsoTime", "IsoTimestamp")
)
DECIMAL: Final = f"{_CONNECT}Decimal"
VARIABLE: Final = "io.debezium.data.VariableScaleDecimal"
_GEOMETRIES: Final = frozenset(
    f"io.debezium.data.geometry.{word}" for word in ("Geometry", "Geography", "Point")
)
_MODES: Final = {"connect": "millis", "microseconds": "micros", "nanoseconds": "nanos"}
_UTC: Final = r"(Z|[+-]00:00)$"
_VARIABLE_TYPE: Final = pa.struct([("scale", pa.int32()), ("value", pa.binary())])
_WKB_TYPE: Final = pa.struct([("wkb", pa.binary())])
_SCALES: Final = range(-76, 77)


@dataclass(frozen=True, slots=True)
class Encoding:
    """How the values of one column are encoded."""

    decoded: pa.DataType
    """Type in which the values are decoded from JSON."""
    convert: Convert | None = None
    """From that type to the type of the column; None if it is the same."""


def by_schema(
    schema: Mapping[str, Any], want: pa.DataType, options: Mapping[str, Any]
) -> Encoding:
    """The encoding of a value by its Connect schema.

    Args:
        schema: Has ``type``, and may have ``name``, ``parameters`` and ``items``.
        want: Type of the column.
        options: Of the decoder.

    Raises:
        ValueError: The schema is inconsistent.
    """
    name = schema.get("name")
    if schema.get("type") == "array" and _is_list(want):
        return _listed(by_schema(schema["items"], want.value_type, options), want)
    if name in _DAYS:
        return _number(_days, want)
    if name in _UNITS:
        return _number(partial(_counted, _UNITS[name]), want)
    if name in _ZONED:
        return _text(want)
    if name in structured.NAMES and _is_instant(want):
        return Encoding(structured.PARTS, structured.from_parts)
    if name == DECIMAL and not pa.types.is_binary(want):
        scale = int(schema["parameters"]["scale"])
        if scale not in _SCALES:
            msg = "the scale of a decimal is not between -76 and 76"
            raise ValueError(msg)
        return Encoding(pa.binary(), partial(_scaled, scale))
    if name == VARIABLE and not pa.types.is_struct(want):
        return Encoding(_VARIABLE_TYPE, _variable)
    if name in _GEOMETRIES and pa.types.is_binary(want):
        return Encoding(_WKB_TYPE, _wkb)
    if schema.get("type") == "string" and _is_bytes(want):
        return Encoding(pa.string(), _BYTES[options["binary.handling.mode"]])
    if schema.get("type") == "bytes" and _is_text(want):
        return Encoding(pa.binary(), _cast)
    return Encoding(want)


def by_options(name: str, want: pa.DataType, options: Mapping[str, Any]) -> Encoding:
    """The encoding of a value whose message has no schema.

    Args:
        name: Of the column.
        want: Type of the column.
        options: Of the decoder.
    """
    types, mode = pa.types, options["time.precision.mode"]
    if _is_list(want):
        return _listed(by_options(name, want.value_type, options), want)
    if name in (options.get("variable.scale.columns") or ()):
        return Encoding(_VARIABLE_TYPE, _variable)
    if _is_bytes(want) and options["binary.handling.mode"] != "bytes":
        return Encoding(pa.string(), _BYTES[options["binary.handling.mode"]])
    if types.is_decimal(want) and options["decimal.handling.mode"] == "precise":
        return Encoding(pa.binary(), partial(_scaled, want.scale))
    if types.is_duration(want) and options["interval.handling.mode"] == "numeric":
        return _number(partial(_counted, "us"), want)
    if mode == "isostring" and types.is_temporal(want):
        return Encoding(want) if types.is_duration(want) else _text(want)
    if mode == "structured" and _is_instant(want):
        return Encoding(structured.PARTS, structured.from_parts)
    if types.is_date(want):
        return _number(_days, want)
    if types.is_time(want):
        unit = want.unit if mode not in _MODES else UNITS[_MODES[mode]]
        unit = "us" if mode == "adaptive_time_microseconds" else unit
        return _number(partial(_counted, unit), want)
    return Encoding(want)


def natural(schema: Mapping[str, Any], have: pa.DataType) -> pa.DataType:
    """The type of a column that is not declared.

    Args:
        schema: The Connect schema of its values, as for `by_schema`.
        have: Type in which they are decoded.
    """
    name = schema.get("name") or ""
    if name in _DAYS:
        return pa.date32()
    unit = _UNITS.get(name)
    if unit is not None and name.endswith("Timestamp"):
        return pa.timestamp(unit)
    if unit is not None and name.endswith("Duration"):
        return pa.duration(unit)
    if unit is not None:
        return pa.time32(unit) if unit == "ms" else pa.time64(unit)
    if name == f"{_DEBEZIUM}ZonedTimestamp":
        return pa.timestamp("us", tz="UTC")
    if name == DECIMAL:
        parameters = schema["parameters"]
        digits = int(parameters.get("connect.decimal.precision", 38))
        scale = int(parameters["scale"])
        if scale < 0:  # whole numbers that end in zeros
            digits, scale = min(digits - scale, 76), 0
        kind = pa.decimal128 if digits <= 38 else pa.decimal256
        return kind(digits, scale)
    return have


def timestamp_unit(options: Mapping[str, Any]) -> str | None:
    """Unit of timestamps that are numbers, in messages without schema."""
    return _MODES.get(options["time.precision.mode"]) or options.get("timestamp.unit")


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _is_instant(kind: pa.DataType) -> bool:
    return bool(pa.types.is_temporal(kind) and not pa.types.is_duration(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _number(convert: Convert, want: pa.DataType) -> Encoding:
    """Of a number that counts from an origin; as such in a column of numbers."""
    if pa.types.is_integer(want):
        return Encoding(want)
    return Encoding(pa.int64(), convert)


def _text(want: pa.DataType) -> Encoding:
    """Of ISO 8601 in UTC, whose zone only timestamps of UTC have."""
    types = pa.types
    naive = types.is_date(want) or types.is_time(want)
    if naive or (types.is_timestamp(want) and want.tz is None):
        return Encoding(pa.string(), _without_zone)
    return Encoding(want)


def _listed(inner: Encoding, want: pa.DataType) -> Encoding:
    if inner.convert is None:
        return Encoding(want)
    return Encoding(pa.list_(inner.decoded), partial(_lists, inner.convert))


# --- conversions ----------------------------------------------------------------------


def _days(column: pa.Array, want: pa.DataType) -> pa.Array:
    return column.cast(pa.int32()).cast(pa.date32()).cast(want)


def _counted(unit: str, column: pa.Array, want: pa.DataType) -> pa.Array:
    types = pa.types
    if types.is_timestamp(want):
        return column.cast(pa.timestamp(unit, want.tz)).cast(want)
    if types.is_duration(want):
        return column.cast(pa.duration(unit)).cast(want)
    if unit == "ms":
        found = column.cast(pa.int32()).cast(pa.time32(unit))
    else:
        found = column.cast(pa.time64(unit))
    found = found.cast(want)
    found.validate(full=True)  # casts accept a time beyond midnight
    return found


def _scaled(scale: int, column: pa.Array, want: pa.DataType) -> pa.Array:
    found = decimals(column, pa.decimal256(76, scale))
    if scale < 0:
        found = found.cast(pa.decimal256(76, 0))
    return found.cast(want)


def _variable(column: pa.Array, want: pa.DataType) -> pa.Array:
    """Decimals that have their own scale each."""
    scales, values = (pc.struct_field(column, name) for name in ("scale", "value"))
    if scales.null_count > column.null_count or values.null_count > column.null_count:
        msg = "a decimal has no scale, or no value"
        raise pa.ArrowInvalid(msg)
    unique = [one for one in scales.unique().to_pylist() if one is not None]
    if not all(one in _SCALES for one in unique):
        msg = "the scale of a decimal is not between -76 and 76"
        raise pa.ArrowInvalid(msg)
    parts, rows = [pa.nulls(1, want)], np.zeros(len(column), np.int64)
    done = 1
    for scale in unique:
        at = np.flatnonzero(pc.fill_null(pc.equal(scales, scale), False))
        parts.append(_scaled(scale, values.take(pa.array(at)), want))
        rows[at] = np.arange(done, done + len(at))
        done += len(at)
    return pa.concat_arrays(parts).take(pa.array(rows))


def _cast(column: pa.Array, want: pa.DataType) -> pa.Array:
    return column.cast(want)


def _unknown(column: pa.Array, want: pa.DataType) -> pa.Array:
    """Texts of bytes, of which it is not known how they were made: not guessed."""
    if column.null_count < len(column):
        msg = "a text stands for bytes: binary.handling.mode is not set"
        raise pa.ArrowInvalid(msg)
    return pa.nulls(len(column), want)


def _base64(column: pa.Array, want: pa.DataType) -> pa.Array:
    return from_base64(column).cast(want)


def _url_safe(column: pa.Array, want: pa.DataType) -> pa.Array:
    if pc.any(pc.match_substring_regex(column, "[+/]")).as_py():
        msg = "a text is not base64 that is safe in URLs"
        raise pa.ArrowInvalid(msg)
    column = pc.replace_substring(column, "-", "+")
    return from_base64(pc.replace_substring(column, "_", "/")).cast(want)


def _hex(column: pa.Array, want: pa.DataType) -> pa.Array:
    return from_hex(column).cast(want)


_BYTES: Final = {
    "bytes": _unknown,
    "base64": _base64,
    "base64-url-safe": _url_safe,
    "hex": _hex,
}
"""By ``binary.handling.mode``."""


def _wkb(column: pa.Array, want: pa.DataType) -> pa.Array:
    return pc.struct_field(column, "wkb").cast(want)


def _without_zone(column: pa.Array, want: pa.DataType) -> pa.Array:
    found = pc.replace_substring_regex(column, _UTC, "")
    if pa.types.is_time(want):
        found = pc.binary_join_element_wise("1970-01-01T", found, "")
        return found.cast(pa.timestamp(want.unit)).cast(want)
    return found.cast(want)


def _lists(convert: Convert, column: pa.Array, want: pa.DataType) -> pa.Array:
    lengths = pc.fill_null(pc.list_value_length(column), 0)
    offsets = np.concatenate([[0], np.cumsum(np.asarray(lengths))])
    large = pa.types.is_large_list(want)
    kind = pa.LargeListArray if large else pa.ListArray
    places = pa.array(offsets, pa.int64() if large else pa.int32())
    values = convert(column.flatten(), want.value_type)
    mask = column.is_null() if column.null_count else None
    return kind.from_arrays(places, values, type=want, mask=mask)
