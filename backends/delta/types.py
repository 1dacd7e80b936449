"""Columns of a new Delta table: the schema and the protocol that its log states."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from streamfactory.spi import SchemaMismatch
from streamfactory.tables.columns import lacks_type

if TYPE_CHECKING:
    from collections.abc import Iterable

NTZ: Final = "timestampNtz"
_NTZ_TYPE: Final = "timestamp_ntz"
_NAMES: Final = {
    pa.string(): "string",
    pa.int64(): "long",
    pa.int32(): "integer",
    pa.int16(): "short",
    pa.int8(): "byte",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.bool_(): "boolean",
    pa.binary(): "binary",
    pa.date32(): "date",
    pa.timestamp("us", "UTC"): "timestamp",
    pa.timestamp("us"): _NTZ_TYPE,
}
_CHARACTERS: Final = re.compile(r"[ ,;{}()\n\t=]")
"""Names of columns with one of these need column mapping."""
_DIGITS: Final = 38


def schema_text(schema: pa.Schema) -> str:
    """The schema of a table, as JSON.

    Raises:
        SchemaMismatch: permanent; Delta lacks the type of a column, or allows no column
            of its name.
    """
    return json.dumps(_struct(schema, ""), separators=(",", ":"))


def field_of(field: pa.Field, parent: str) -> dict[str, Any]:
    """A field of a schema, as JSON.

    Args:
        field: The field.
        parent: Path of the struct that has it, with a dot behind; empty for a column.

    Raises:
        SchemaMismatch: permanent; see `schema_text`.
    """
    (found,) = _struct([field], parent)["fields"]
    return dict(found)


def protocol_of_new(schema: str) -> dict[str, Any]:
    """The action ``protocol`` of a new table with this schema."""
    if f'"{_NTZ_TYPE}"' not in schema:
        return {"minReaderVersion": 1, "minWriterVersion": 2}
    return {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": [NTZ],
        "writerFeatures": [NTZ],
    }


def _struct(fields: Iterable[pa.Field], parent: str) -> dict[str, Any]:
    found, known = [], set()
    for field in fields:
        path = f"{parent}{field.name}"
        if _CHARACTERS.search(field.name) or not field.name:
            what = f"a Delta table has no column named {path!r}"
            remedy = "rename it: names have no spaces and none of , ; { } ( ) ="
            raise SchemaMismatch(what, remedy=remedy)
        if field.name.lower() in known:
            what = f"two columns are named {path!r}, which a Delta table does not have"
            raise SchemaMismatch(what, remedy="rename one: case makes no difference")
        known.add(field.name.lower())
        one = {"name": field.name, "type": _type(field.type, path)}
        found.append({**one, "nullable": field.nullable, "metadata": {}})
    return {"type": "struct", "fields": found}


def _type(kind: pa.DataType, path: str) -> Any:
    types = pa.types
    if kind in _NAMES:
        return _NAMES[kind]
    if types.is_decimal(kind) and 0 <= kind.scale <= kind.precision <= _DIGITS:
        return f"decimal({kind.precision},{kind.scale})"
    if types.is_struct(kind):
        return _struct(kind, f"{path}.")
    if types.is_list(kind):
        inner = kind.value_field
        element = _type(inner.type, f"{path}.{inner.name}")
        found = {"type": "array", "elementType": element}
        return {**found, "containsNull": inner.nullable}
    if types.is_map(kind):
        return {
            "type": "map",
            "keyType": _type(kind.key_type, f"{path}.key"),
            "valueType": _type(kind.item_type, f"{path}.value"),
            "valueContainsNull": kind.item_field.nullable,
        }
    refused = lacks_type("a Delta table", path, kind)
    raise refused
