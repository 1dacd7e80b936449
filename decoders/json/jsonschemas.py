"""JSON Schemas of a registry: the columns of one, one for columns, validation."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from streamfactory.spi import NotInstalled, SchemaMismatch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_DEEPEST: Final = 64
_MOST: Final = 10_000
_FORMATS: Final = {
    "date": pa.date32(),
    "date-time": pa.timestamp("us", tz="UTC"),
}
_CONNECT: Final = {
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "bytes": pa.binary(),
}
_SIMPLE: Final = {
    "string": pa.string(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
}


class SchemaRefused(ValueError):
    """A JSON Schema has no columns. The text is the reason."""


def columns_of(text: str) -> pa.Schema:
    """The columns of a JSON Schema of objects.

    Raises:
        SchemaRefused: With the reason.
    """
    try:
        root = json.loads(text)
    except (ValueError, RecursionError):
        msg = "it is not JSON"
        raise SchemaRefused(msg) from None
    try:
        kind = _Reader(root).type(root, "", 0)
    except SchemaRefused:
        raise
    except (AttributeError, KeyError, TypeError, ValueError):
        msg = "it is inconsistent"
        raise SchemaRefused(msg) from None
    if not pa.types.is_struct(kind):
        msg = "it is not a schema of objects with properties"
        raise SchemaRefused(msg)
    return pa.schema(list(kind))


class _Reader:
    def __init__(self, root: Any) -> None:
        self._root = root
        self._count = 0

    def type(self, schema: Any, path: str, depth: int) -> pa.DataType:
        """The type of the values of a schema."""
        self._count += 1
        if depth > _DEEPEST or self._count > _MOST:
            msg = f"it is recursive, or has more than {_DEEPEST} levels"
            raise SchemaRefused(msg)
        schema, _ = self._single(schema, path)
        kind = schema.get("type", "object" if "properties" in schema else None)
        if kind == "object":
            return self._object(schema, path, depth)
        if kind == "array" and isinstance(schema.get("items"), dict):
            items = schema["items"]
            item = self.type(items, f"{path}[]", depth + 1)
            return pa.list_(pa.field("item", item, self._single(items, path)[1]))
        if schema.get("contentEncoding") == "base64":
            return pa.binary()
        found = _CONNECT.get(schema.get("connect.type", ""))
        if found is None and kind == "string":
            found = _FORMATS.get(schema.get("format", ""))
        found = found or _SIMPLE.get(kind or "") or self._of_values(schema)
        if found is None:
            msg = f"the type of {path or 'the value'!r} is not one that columns have"
            raise SchemaRefused(msg)
        return found

    def _of_values(self, schema: Mapping[str, Any]) -> pa.DataType | None:
        values = schema.get("enum", [schema["const"]] if "const" in schema else [])
        texts = bool(values) and all(isinstance(one, str | None) for one in values)
        return pa.string() if texts else None

    def _object(self, schema: Mapping[str, Any], path: str, depth: int) -> pa.DataType:
        properties = schema.get("properties")
        if not isinstance(properties, dict) or not properties:
            items = schema.get("additionalProperties")
            if not isinstance(items, dict):
                msg = f"the object {path or 'itself'!r} has no properties"
                raise SchemaRefused(msg)
            return pa.map_(pa.string(), self.type(items, f"{path}.*", depth + 1))
        required = schema.get("required", ())
        fields = []
        for name, one in properties.items():
            inner = f"{path}.{name}".lstrip(".")
            nullable = self._single(one, inner)[1] or name not in required
            fields.append(pa.field(name, self.type(one, inner, depth + 1), nullable))
        return pa.struct(fields)

    def _single(self, schema: Any, path: str) -> tuple[Mapping[str, Any], bool]:
        """A schema without references and null, and whether null is valid."""
        nullable = False
        for _ in range(_DEEPEST):
            if not isinstance(schema, dict):
                break
            kinds = schema.get("type")
            if "$ref" in schema:
                schema = self._referred(schema["$ref"])
            elif isinstance(kinds, list):
                others = [one for one in kinds if one != "null"]
                nullable |= len(others) < len(kinds)
                if len(others) != 1:
                    break
                schema = {**schema, "type": others[0]}
            elif "oneOf" in schema or "anyOf" in schema:
                choices = schema["oneOf" if "oneOf" in schema else "anyOf"]
                others = [one for one in choices if one != {"type": "null"}]
                nullable |= len(others) < len(choices)
                if len(others) != 1:
                    break
                schema = others[0]
            else:
                return schema, nullable
        msg = f"{path or 'the value'!r} has several types, or none"
        raise SchemaRefused(msg)

    def _referred(self, reference: Any) -> Any:
        found = self._root
        if not isinstance(reference, str) or not reference.startswith("#"):
            msg = "references to other documents are not supported"
            raise SchemaRefused(msg)
        for part in reference.removeprefix("#").split("/")[1:]:
            word = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, dict) or word not in found:
                msg = f"the reference {reference!r} leads nowhere"
                raise SchemaRefused(msg)
            found = found[word]
        return found


# --- for columns ----------------------------------------------------------------------


def schema_of(columns: pa.Schema, title: str) -> str:
    """The JSON Schema of what the encoder writes for columns.

    Raises:
        SchemaMismatch: permanent; a column has a type without a JSON Schema.
    """
    draft = "http://json-schema.org/draft-07/schema#"
    return json.dumps({"$schema": draft, "title": title, **_object(list(columns))})


def _object(fields: list[pa.Field]) -> dict[str, Any]:
    # Each column is written, null too.
    return {
        "type": "object",
        "properties": {field.name: _property(field) for field in fields},
        "required": [field.name for field in fields],
        "additionalProperties": False,
    }


def _property(field: pa.Field) -> dict[str, Any]:
    found = _described(field)
    return {"oneOf": [{"type": "null"}, found]} if field.nullable else found


def _described(field: pa.Field) -> dict[str, Any]:
    kind, types = field.type, pa.types
    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_struct(kind):
        return _object(list(kind))
    if types.is_map(kind):
        return {"type": "object", "additionalProperties": _property(kind.item_field)}
    if types.is_list(kind) or types.is_large_list(kind):
        return {"type": "array", "items": _property(kind.value_field)}
    return _scalar(field.name, kind)


def _scalar(name: str, kind: pa.DataType) -> dict[str, Any]:
    types = pa.types
    text = types.is_string(kind) or types.is_large_string(kind)
    if types.is_integer(kind):
        known = str(kind) in _CONNECT
        return {"type": "integer", **({"connect.type": str(kind)} if known else {})}
    if types.is_float32(kind):
        return {"type": "number", "connect.type": "float32"}
    for fits, found in (
        (types.is_boolean(kind), {"type": "boolean"}),
        (types.is_floating(kind) or types.is_decimal(kind), {"type": "number"}),
        (
            types.is_timestamp(kind) and kind.tz is not None,
            {"type": "string", "format": "date-time"},
        ),
        (types.is_date(kind), {"type": "string", "format": "date"}),
        (
            types.is_binary(kind) or types.is_large_binary(kind),
            {"type": "string", "contentEncoding": "base64"},
        ),
        (text or types.is_temporal(kind), {"type": "string"}),
    ):
        if fits:
            return found
    msg = f"column {name!r} has the type {kind}, which has no JSON Schema"
    raise SchemaMismatch(msg, remedy="cast or drop the column")


# --- validation -----------------------------------------------------------------------


def validator_of(text: str) -> Callable[[Any], bool]:
    """A function that returns whether a value is valid; it opens no references.

    Raises:
        NotInstalled: config; the package is missing.
        SchemaRefused: The schema is not valid.
    """
    try:
        import jsonschema_rs
    except ImportError as error:
        msg = "the validation of messages by JSON Schema requires jsonschema-rs"
        remedy = "run: pip install 'streamfactory[jsonschema]', or set "
        remedy += "schema.registry.validate to false"
        raise NotInstalled(msg, remedy=remedy) from error
    try:
        found = jsonschema_rs.validator_for(json.loads(text), offline=True)
    except (ValueError, jsonschema_rs.ReferencingError, RecursionError) as error:
        msg = f"it is not a JSON Schema: {type(error).__name__}"
        raise SchemaRefused(msg) from error
    valid: Callable[[Any], bool] = found.is_valid
    return valid
