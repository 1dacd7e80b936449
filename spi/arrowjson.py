"""Schemas as text: the JSON form that Arrow's own integration tests use, both ways.

``{"fields": [{"name": "id", "nullable": true, "type": {"name": "int", "bitWidth": 64,
"isSigned": true}, "children": []}]}``. It covers every type of DDL, and types that DDL
lacks: unsigned integers, other time units, fixed-size types.
"""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from streamfactory.spi.ddl import parse_ddl, refuse_repeated

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

_UNITS: Final = {
    "SECOND": "s",
    "MILLISECOND": "ms",
    "MICROSECOND": "us",
    "NANOSECOND": "ns",
}
_UNIT_NAMES: Final = {short: name for name, short in _UNITS.items()}


def parse_schema(text: str) -> pa.Schema:
    """Read a schema in either form: JSON begins with a brace, DDL does not.

    Raises:
        ValueError: The text is not a schema. The message continues a sentence that
            begins with the value.
    """
    is_json = text.lstrip().startswith("{")
    return parse_arrow_json(text) if is_json else parse_ddl(text)


def parse_arrow_json(text: str) -> pa.Schema:
    """Read a schema.

    Raises:
        ValueError: The text is not a schema; the message says where.
    """
    import pyarrow as pa

    try:
        fields = [_field(entry) for entry in _entries(json.loads(text), "fields")]
    except RecursionError:
        msg = "is nested too deeply"
        raise ValueError(msg) from None
    except json.JSONDecodeError as error:
        msg = f"is not JSON: {error}"
        raise ValueError(msg) from None
    refuse_repeated(field.name for field in fields)
    return pa.schema(fields)


def to_arrow_json(schema: pa.Schema) -> str:
    """Write a schema so that `parse_arrow_json` reads it.

    Raises:
        ValueError: A type has no JSON form (dictionaries, unions, ...).
    """
    return json.dumps({"fields": [_to_plain(field) for field in schema]})


def _entries(value: Any, key: str) -> Sequence[Any]:
    entries = value.get(key, []) if isinstance(value, dict) else None
    if not isinstance(entries, list):
        msg = f"is not a schema: expected an object with a list of {key!r}"
        raise ValueError(msg)  # noqa: TRY004 - a bad value, not a bad type
    return entries


def _field(entry: Any) -> pa.Field:
    import pyarrow as pa

    children = [_field(child) for child in _entries(entry, "children")]
    name, kind = entry.get("name"), entry.get("type")
    nullable = entry.get("nullable", True)
    if not isinstance(name, str) or not isinstance(nullable, bool):
        msg = "is not a schema: a field has no name, or 'nullable' is not a boolean"
        raise ValueError(msg)  # noqa: TRY004 - a bad value, not a bad type
    made_of = kind.get("name") if isinstance(kind, dict) else None
    if not isinstance(made_of, str) or made_of not in _makers():
        msg = f"has column {name!r} of an unknown type"
        raise ValueError(msg)
    try:
        found = _makers()[made_of](kind, children)
    except (KeyError, TypeError, ValueError, IndexError, pa.ArrowException):
        msg = f"has column {name!r}, whose type {made_of!r} is not complete"
        raise ValueError(msg) from None
    return pa.field(name, found, nullable=nullable)


@cache
def _makers() -> Mapping[str, Callable[[Any, Sequence[pa.Field]], pa.DataType]]:
    """Functions that build a type from its JSON and its children, by its JSON name."""
    import pyarrow as pa

    floats = {"HALF": pa.float16, "SINGLE": pa.float32, "DOUBLE": pa.float64}
    decimals = {128: pa.decimal128, 256: pa.decimal256}
    dates = {"DAY": pa.date32, "MILLISECOND": pa.date64}
    times = {"s": pa.time32, "ms": pa.time32, "us": pa.time64, "ns": pa.time64}
    whole = {
        (signed, width): getattr(pa, f"{'' if signed else 'u'}int{width}")
        for signed in (True, False)
        for width in (8, 16, 32, 64)
    }

    def time(kind: Any, _: Sequence[pa.Field]) -> pa.DataType:
        unit = _UNITS[kind["unit"]]
        return times[unit](unit)

    return {
        "null": lambda *_: pa.null(),
        "bool": lambda *_: pa.bool_(),
        "utf8": lambda *_: pa.string(),
        "largeutf8": lambda *_: pa.large_string(),
        "binary": lambda *_: pa.binary(),
        "largebinary": lambda *_: pa.large_binary(),
        "fixedsizebinary": lambda kind, _: pa.binary(kind["byteWidth"]),
        "int": lambda kind, _: whole[kind["isSigned"], kind["bitWidth"]](),
        "floatingpoint": lambda kind, _: floats[kind["precision"]](),
        "decimal": lambda kind, _: decimals[kind.get("bitWidth", 128)](
            kind["precision"], kind["scale"]
        ),
        "date": lambda kind, _: dates[kind["unit"]](),
        "time": time,
        "timestamp": lambda kind, _: pa.timestamp(
            _UNITS[kind["unit"]], tz=kind.get("timezone")
        ),
        "duration": lambda kind, _: pa.duration(_UNITS[kind["unit"]]),
        "list": lambda _, children: pa.list_(*children),
        "largelist": lambda _, children: pa.large_list(*children),
        "fixedsizelist": lambda kind, children: pa.list_(*children, kind["listSize"]),
        "struct": lambda _, children: pa.struct(children),
        "map": lambda kind, children: pa.map_(
            children[0].type.field(0),
            children[0].type.field(1),
            keys_sorted=kind.get("keysSorted", False),
        ),
    }


def _to_plain(field: pa.Field) -> dict[str, Any]:
    import pyarrow as pa

    kind = field.type
    if pa.types.is_map(kind):
        entries = pa.struct([kind.key_field, kind.item_field])
        children = [pa.field("entries", entries, nullable=False)]
    else:
        children = [kind.field(index) for index in range(kind.num_fields)]
    return {
        "name": field.name,
        "nullable": field.nullable,
        "type": _type_to_plain(kind),
        "children": [_to_plain(child) for child in children],
    }


def _type_to_plain(kind: pa.DataType) -> dict[str, Any]:
    import pyarrow as pa

    is_ = pa.types
    if is_.is_integer(kind):
        signed = is_.is_signed_integer(kind)
        return {"name": "int", "bitWidth": kind.bit_width, "isSigned": signed}
    if is_.is_floating(kind):
        word = {16: "HALF", 32: "SINGLE", 64: "DOUBLE"}[kind.bit_width]
        return {"name": "floatingpoint", "precision": word}
    if is_.is_decimal128(kind) or is_.is_decimal256(kind):
        digits = {"precision": kind.precision, "scale": kind.scale}
        return {"name": "decimal", **digits, "bitWidth": kind.bit_width}
    if is_.is_date(kind):
        return {"name": "date", "unit": "DAY" if is_.is_date32(kind) else "MILLISECOND"}
    if is_.is_timestamp(kind):
        zone = {} if kind.tz is None else {"timezone": kind.tz}
        return {"name": "timestamp", "unit": _UNIT_NAMES[kind.unit], **zone}
    if is_.is_time(kind):
        unit = _UNIT_NAMES[kind.unit]
        return {"name": "time", "unit": unit, "bitWidth": kind.bit_width}
    if is_.is_duration(kind):
        return {"name": "duration", "unit": _UNIT_NAMES[kind.unit]}
    if is_.is_fixed_size_binary(kind):
        return {"name": "fixedsizebinary", "byteWidth": kind.byte_width}
    if is_.is_fixed_size_list(kind):
        return {"name": "fixedsizelist", "listSize": kind.list_size}
    if is_.is_map(kind):
        return {"name": "map", "keysSorted": kind.keys_sorted}
    names = {
        "string": "utf8",
        "large_string": "largeutf8",
        "large_binary": "largebinary",
        "large_list": "largelist",
    }
    word = str(kind).partition("<")[0]
    word = names.get(word, word)
    if word not in _makers():
        msg = f"type {kind} has no JSON form"
        raise ValueError(msg)
    return {"name": word}
