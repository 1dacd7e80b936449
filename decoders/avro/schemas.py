"""Parsed Avro schemas: encoded types and the Arrow types that they map to."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import fastavro
import pyarrow as pa

from streamfactory.spi.causes import first_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_DEEPEST: Final = 64
_MOST: Final = 10_000
"""Maximum nodes. Named types let a short text describe a very large schema."""
_LONGEST: Final = 1 << 20

PRIMITIVES: Final = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
"""Arrow types of Avro's primitive types."""
_UTC: Final = "UTC"
_TIMES: Final = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms", _UTC),
    ("long", "timestamp-micros"): pa.timestamp("us", _UTC),
    ("long", "timestamp-nanos"): pa.timestamp("ns", _UTC),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("long", "local-timestamp-nanos"): pa.timestamp("ns"),
}


class SchemaRefused(ValueError):
    """The schema is invalid or has no columnar form. The text is the reason."""


@dataclass(frozen=True, slots=True)
class Node:
    """One type of a schema, with all names resolved.

    Two nodes are equal if their encoding and their Arrow types are equal.
    """

    kind: str
    """Avro's type name, or ``option`` for a union of null and one other type."""
    arrow: pa.DataType
    children: tuple[Node, ...] = ()
    """Fields of a record, branches of a union, else the item or value type."""
    names: tuple[str, ...] = ()
    """Names of fields (record) or members (union); symbols (enum)."""
    size: int = 0
    """Bytes of a fixed."""
    null_at: int = -1
    """Index of the null branch of an option or union."""
    name: str = ""
    """Full name of a named type."""
    aliases: tuple[tuple[str, ...], ...] = ()
    """Record: the aliases of each field."""
    defaults: tuple[tuple[Any, ...], ...] = ()
    """Record: for each field a tuple with its decoded default, or empty."""
    default: str | None = None
    """Default symbol of an enum."""

    @property
    def nullable(self) -> bool:
        """Whether a value can be null."""
        return self.kind in ("option", "null") or (
            self.kind == "union" and self.null_at >= 0
        )

    @property
    def is_decimal(self) -> bool:
        """Whether the bytes encode a decimal."""
        return self.kind in ("bytes", "fixed") and bool(pa.types.is_decimal(self.arrow))

    @property
    def least(self) -> int:
        """Minimum number of bytes of a value."""
        if self.kind == "record":
            return sum(child.least for child in self.children)
        return {"null": 0, "fixed": self.size, "float": 4, "double": 8}.get(
            self.kind, 1
        )

    def field(self, name: str) -> pa.Field:
        """A column, or a member, of this type."""
        return pa.field(name, self.arrow, nullable=self.nullable)


def parse(
    text: str, references: Sequence[str] = (), *, raw_times: bool = False
) -> Node:
    """Parse a schema; a non-record becomes a record with the column ``value``.

    Args:
        text: JSON.
        references: Schemas of referenced types, each after the ones that it needs.
        raw_times: Map dates and times to numbers, as they are encoded.

    Raises:
        SchemaRefused: With the reason.
    """
    length = sum(map(len, (*references, text)))
    if length > _LONGEST:
        msg = f"the schema has {length} characters, the maximum is {_LONGEST}"
        raise SchemaRefused(msg)
    names: dict[str, Any] = {}
    parsed: Any = None
    try:
        for part in (*references, text):
            schema = _without_invalid_decimals(json.loads(part))
            parsed = fastavro.parse_schema(schema, named_schemas=names)
        node = _SchemaParser(names, raw_times=raw_times).node(parsed, ())
    except SchemaRefused:
        raise
    except RecursionError:
        msg = "the schema is nested too deeply"
        raise SchemaRefused(msg) from None
    except Exception as error:  # fastavro raises many types of errors
        what = first_line(error, 200) if str(error) else "the schema is incomplete"
        msg = f"not an Avro schema: {what}"
        raise SchemaRefused(msg) from error
    if node.kind == "record":
        return node
    return Node(
        "record",
        pa.struct([node.field("value")]),
        (node,),
        ("value",),
        name="value",
        aliases=((),),
        defaults=((),),
    )


def _without_invalid_decimals(schema: Any) -> Any:
    """Remove the logical types that the specification says to ignore.

    fastavro refuses them. Connectors write precision 64 and scale 127 for Oracle's
    NUMBER without a precision.
    """
    if isinstance(schema, list):
        return [_without_invalid_decimals(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {
        key: _without_invalid_decimals(value)
        if key in ("type", "items", "values", "fields")
        else value
        for key, value in schema.items()
    }
    if schema.get("logicalType") == "decimal" and not _has_decimal(schema):
        del found["logicalType"]
    return found


def _has_decimal(schema: Mapping[str, Any]) -> bool:
    if schema.get("type") not in ("bytes", "fixed"):
        return False
    size = schema.get("size", 0)
    return type(size) is int and _decimal(schema, size) is not None


class _SchemaParser:
    def __init__(self, names: Mapping[str, Any], *, raw_times: bool) -> None:
        self._names = names
        self._raw_times = raw_times
        self._count = 0

    def node(self, schema: Any, above: tuple[str, ...], depth: int = 0) -> Node:
        self._count += 1
        if self._count > _MOST or depth > _DEEPEST:
            msg = f"the schema has more than {_MOST} types or {_DEEPEST} levels"
            raise SchemaRefused(msg)
        if isinstance(schema, list):
            return self._union(schema, above, depth)
        if isinstance(schema, str):
            if schema in PRIMITIVES:
                return Node(schema, PRIMITIVES[schema])
            if schema in above:
                msg = f"type {schema!r} is recursive: Arrow columns have a fixed depth"
                raise SchemaRefused(msg)
            schema = self._names[schema]
        kind = schema["type"]
        if kind in ("record", "error"):
            return self._record(schema, above, depth)
        if kind == "array":
            return self._array(self.node(schema["items"], above, depth + 1))
        if kind == "map":
            child = self.node(schema["values"], above, depth + 1)
            arrow = pa.map_(pa.string(), child.field("value"))
            return Node("map", arrow, (child,))
        if kind == "enum":
            return Node(
                "enum",
                pa.string(),
                names=_texts(schema["symbols"]),
                name=_text(schema["name"]),
                default=schema.get("default"),
            )
        if not isinstance(kind, str) or kind not in (*PRIMITIVES, "fixed"):
            return self.node(kind, above, depth + 1)
        return self._scalar(kind, schema)

    def _scalar(self, kind: str, schema: Mapping[str, Any]) -> Node:
        logical = str(schema.get("logicalType"))
        size = schema.get("size", 0)
        if type(size) is not int or not 0 <= size < 2**31:
            msg = "the size of a fixed type is not an integer below 2**31"
            raise SchemaRefused(msg)
        arrow = pa.binary(size) if kind == "fixed" else PRIMITIVES[kind]
        if not self._raw_times:
            arrow = _TIMES.get((kind, logical), arrow)
        if logical == "decimal" and kind in ("bytes", "fixed"):
            arrow = _decimal(schema, size) or arrow
        return Node(kind, arrow, size=size, name=_text(schema.get("name", "")))

    def _array(self, child: Node) -> Node:
        if child.least == 0:
            msg = (
                "the items of an array have no bytes: a short message could declare "
                "billions of them"
            )
            raise SchemaRefused(msg)
        return Node("array", pa.list_(child.field("item")), (child,))

    def _record(self, schema: Mapping[str, Any], above: Any, depth: int) -> Node:
        name, fields = _text(schema["name"]), schema["fields"]
        children = tuple(
            self.node(field["type"], (*above, name), depth + 1) for field in fields
        )
        names = _texts([field["name"] for field in fields])
        if len(set(names)) < len(names):
            msg = f"record {name!r} has two fields of one name"
            raise SchemaRefused(msg)
        pairs = list(zip(children, names, strict=True))
        return Node(
            "record",
            pa.struct([child.field(field) for child, field in pairs]),
            children,
            names,
            name=name,
            aliases=tuple(_texts(field.get("aliases", ())) for field in fields),
            defaults=tuple(
                (_default(child, field["default"], name),) if "default" in field else ()
                for child, field in zip(children, fields, strict=True)
            ),
        )

    def _union(self, schema: list[Any], above: Any, depth: int) -> Node:
        branches = [self.node(branch, above, depth + 1) for branch in schema]
        if not schema:
            msg = "a union has no types"
            raise SchemaRefused(msg)
        nulls = [at for at, branch in enumerate(branches) if branch.kind == "null"]
        null_at = nulls[0] if nulls else -1
        others = [branch for branch in branches if branch.kind != "null"]
        if len(branches) == 2 and len(others) == 1:
            return Node("option", others[0].arrow, tuple(branches), null_at=null_at)
        names = tuple(f"member_{_short(branch)}" for branch in branches)
        members = zip(branches, names, strict=True)
        arrow = pa.struct(
            [pa.field(n, b.arrow) for b, n in members if b.kind != "null"]
        )
        if len(set(names)) < len(names):
            msg = "two types of a union have the same name without namespace"
            raise SchemaRefused(msg)
        if not others:
            arrow = pa.null()
        return Node("union", arrow, tuple(branches), names, null_at=null_at)


def _text(name: Any) -> str:
    """Check a name: fastavro accepts any JSON value in its place."""
    if not isinstance(name, str):
        msg = "a name is not a string"
        raise SchemaRefused(msg)
    return name


def _texts(names: Sequence[Any]) -> tuple[str, ...]:
    return tuple(map(_text, names))


def _short(branch: Node) -> str:
    return (branch.name or branch.kind).rpartition(".")[2]


def _decimal(schema: Mapping[str, Any], size: int) -> pa.DataType | None:
    """The Arrow decimal; None where the specification falls back to bytes."""
    precision, scale = schema.get("precision", 0), schema.get("scale", 0)
    if not all(type(number) is int for number in (precision, scale)):
        return None
    if not precision > 0 or not 0 <= scale <= precision:
        return None
    if size and precision > math.floor(math.log10(2) * (8 * size - 1)):
        return None
    if precision > 76:
        msg = f"a decimal has {precision} digits, the maximum is 76"
        raise SchemaRefused(msg)
    return (pa.decimal128 if precision <= 38 else pa.decimal256)(precision, scale)


def _default(node: Node, value: Any, where: str) -> Any:
    """Convert a default from JSON to the value that a reader returns."""
    try:
        return _from_json(node, value)
    except (KeyError, TypeError, ValueError, AttributeError):
        msg = f"a default in record {where!r} does not fit the type of its field"
        raise SchemaRefused(msg) from None


def _from_json(node: Node, value: Any) -> Any:
    kind = node.kind
    if kind in ("option", "union"):
        # By the specification of the first branch; others are common in practice.
        for at, branch in enumerate(node.children):
            try:
                found = _from_json(branch, value)
            except (KeyError, TypeError, ValueError, AttributeError):
                continue
            if kind == "union" and found is not None:
                return {node.names[at]: found}
            return found
        raise ValueError
    if kind == "record":
        return {
            name: _from_json(child, value[name]) if name in value else default[0]
            for name, child, default in zip(
                node.names, node.children, node.defaults, strict=True
            )
            if name in value or default
        }
    if kind == "array":
        _require(value, list)
        return [_from_json(node.children[0], item) for item in value]
    if kind == "map":
        return [(key, _from_json(node.children[0], v)) for key, v in value.items()]
    if kind in ("bytes", "fixed"):
        return value.encode("latin-1")
    wanted: dict[str, type | tuple[type, ...]] = {
        "null": type(None),
        "boolean": bool,
        "int": int,
        "long": int,
        "float": (int, float),
        "double": (int, float),
    }
    _require(value, wanted.get(kind, str))
    if kind != "boolean" and isinstance(value, bool):
        raise TypeError
    if kind == "enum" and value not in node.names:
        raise ValueError
    return float(value) if kind in ("float", "double") else value


def _require(value: Any, kind: type | tuple[type, ...]) -> None:
    if not isinstance(value, kind):
        raise TypeError


def same(one: Node, other: Node) -> bool:
    """Whether two nodes have the same encoding and the same columns."""
    bare = (
        replace(n, aliases=(), defaults=(), default=None, name="") for n in (one, other)
    )
    first, second = bare
    if replace(first, children=()) != replace(second, children=()):
        return False
    return len(one.children) == len(other.children) and all(
        map(same, one.children, other.children)
    )
