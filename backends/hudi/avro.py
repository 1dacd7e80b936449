"""Arrow's types for the Avro schema that a commit of a Hudi table states."""

from __future__ import annotations

import json
from typing import Any, Final

import pyarrow as pa

from streamfactory.spi import FormatRefused

_PRIMITIVES: Final = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
}
_LOGICAL: Final = {
    "date": pa.date32(),
    "time-millis": pa.time32("ms"),
    "time-micros": pa.time64("us"),
    "timestamp-millis": pa.timestamp("ms", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
}
_MOST_DIGITS_128: Final = 38
_DEEPEST: Final = 64


def arrow_schema(text: str) -> pa.Schema:
    """The columns of an Avro record schema.

    Args:
        text: The schema, as JSON.

    Raises:
        FormatRefused: permanent; it is no record, or has a type that Arrow has not.
    """
    try:
        found = _type(json.loads(text), {}, 0)
    except (
        ValueError,
        KeyError,
        TypeError,
        RecursionError,
        pa.ArrowException,
    ) as error:
        what = f"the schema of the table cannot be read: {error}"
        raise FormatRefused(what) from error
    if not pa.types.is_struct(found):
        what = "the schema of the table is no record"
        raise FormatRefused(what)
    return pa.schema(list(found))


def _type(avro: Any, named: dict[str, pa.DataType], depth: int) -> pa.DataType:
    if depth > _DEEPEST:
        what = f"it is nested deeper than {_DEEPEST}"
        raise ValueError(what)
    if isinstance(avro, list):
        options = [option for option in avro if option != "null"]
        if len(options) != 1:
            what = f"a union of {len(options)} types is not supported"
            raise ValueError(what)
        return _type(options[0], named, depth + 1)
    if isinstance(avro, str):
        return _PRIMITIVES.get(avro) or named[avro.rpartition(".")[2]]
    if isinstance(avro["type"], list | dict):
        return _type(avro["type"], named, depth + 1)
    found = _logical(avro) or _nested(avro, named, depth + 1)
    if "name" in avro:
        named[str(avro["name"]).rpartition(".")[2]] = found
    return found


def _logical(avro: Any) -> pa.DataType | None:
    logical = avro.get("logicalType")
    if logical != "decimal":
        return _LOGICAL.get(logical)
    precision, scale = int(avro["precision"]), int(avro.get("scale", 0))
    if precision > _MOST_DIGITS_128:
        return pa.decimal256(precision, scale)
    return pa.decimal128(precision, scale)


def _nested(avro: Any, named: dict[str, pa.DataType], depth: int) -> pa.DataType:
    kind = avro["type"]
    if kind == "record":
        return pa.struct([_field(field, named, depth) for field in avro["fields"]])
    if kind == "array":
        return pa.list_(_type(avro["items"], named, depth))
    if kind == "map":
        return pa.map_(pa.string(), _type(avro["values"], named, depth))
    if kind == "fixed":
        return pa.binary(int(avro["size"]))
    return _type(kind, named, depth)


def _field(field: Any, named: dict[str, pa.DataType], depth: int) -> pa.Field:
    nullable = isinstance(field["type"], list) and "null" in field["type"]
    return pa.field(field["name"], _type(field["type"], named, depth), nullable)
