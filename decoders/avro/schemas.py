"""Avro schemas, read once: what lies on the wire, and which Arrow types it becomes."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import fastavro
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_DEEPEST: Final = 64
_MOST: Final = 10_000
"""Nodes of a schema: names that stand for others can make a short text very large."""
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
"""Arrow types of the types without parts."""
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
    """The schema is none, or cannot be had in columns; says why in words."""


@dataclass(frozen=True, slots=True)
class Node:
    """One type of a schema, with all names resolved.

    Two nodes are equal where they mean the same: on the wire, and in Arrow.
    """

    kind: str
    """Avro's word, or ``option`` for a union of null and one other type."""
    arrow: pa.DataType
    children: tuple[Node, ...] = ()
    """Of a record its fields, of a union its branches, else what it is made of."""
    names: tuple[str, ...] = ()
    """Of a record its fields', of a union its members', of an enum its symbols."""
    size: int = 0
    """Of a fixed."""
    null_at: int = -1
    """Of an option: which branch is null."""
    name: str = ""
    """Full name, of a named type."""
    aliases: tuple[tuple[str, ...], ...] = ()
    """Of a record: other names of each field."""
    defaults: tuple[tuple[Any, ...], ...] = ()
    """Of a record: for each field one default, decoded, or none."""
    default: str | None = None
    """Of an enum."""

    @property
    def nullable(self) -> bool:
        """Whether a value can be null."""
        return self.kind in ("option", "null") or (
            self.kind == "union" and self.null_at >= 0
        )

    @property
    def is_decimal(self) -> bool:
        """Whether bytes on the wire are a number."""
        return self.kind in ("bytes", "fixed") and bool(pa.types.is_decimal(self.arrow))

    @property
    def least(self) -> int:
        """Bytes that a value takes at least."""
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
    """Read a schema; of another type than a record, a record with a column ``value``.

    Args:
        text: JSON.
        references: Schemas whose types it names, each after those that it needs.
        raw_times: Leave dates and times the numbers that they are on the wire.

    Raises:
        SchemaRefused: Why, in words.
    """
    length = sum(map(len, (*references, text)))
    if length > _LONGEST:
        msg = f"the schema is {length} characters long, {_LONGEST} are allowed"
        raise SchemaRefused(msg)
    names: dict[str, Any] = {}
    parsed: Any = None
    try:
        for part in (*references, text):
            parsed = fastavro.parse_schema(json.loads(part), named_schemas=names)
        node = _Walk(names, raw_times=raw_times).node(parsed, ())
    except SchemaRefused:
        raise
    except RecursionError:
        msg = "the schema is nested too deeply"
        raise SchemaRefused(msg) from None
    except Exception as error:  # many kinds come: ValueError, KeyError, its own
        what = str(error).splitlines()[0][:200] if str(error) else "it is incomplete"
        msg = f"the schema is no Avro schema: {what}"
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


class _Walk:
    def __init__(self, names: Mapping[str, Any], *, raw_times: bool) -> None:
        self._names = names
        self._raw_times = raw_times
        self._count = 0

    def node(self, schema: Any, above: tuple[str, ...], depth: int = 0) -> Node:
        self._count += 1
        if self._count > _MOST or depth > _DEEPEST:
            msg = f"the schema has more than {_MOST} types, or {_DEEPEST} levels"
            raise SchemaRefused(msg)
        if isinstance(schema, list):
            return self._union(schema, above, depth)
        if isinstance(schema, str):
            if schema in PRIMITIVES:
                return Node(schema, PRIMITIVES[schema])
            if schema in above:
                msg = (
                    f"type {schema!r} holds itself: a value could be of any depth, "
                    "which no column can be"
                )
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
            msg = "the size of a fixed type is no number of bytes below 2**31"
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
                "an array has items that take no bytes: a short message could have "
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
            msg = f"record {name!r} has a field twice"
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
            msg = "two types of a union have the same last name"
            raise SchemaRefused(msg)
        if not others:
            arrow = pa.null()
        return Node("union", arrow, tuple(branches), names, null_at=null_at)


def _text(name: Any) -> str:
    """A name; fastavro accepts any value in its place."""
    if not isinstance(name, str):
        msg = "a name is no text"
        raise SchemaRefused(msg)
    return name


def _texts(names: Sequence[Any]) -> tuple[str, ...]:
    return tuple(map(_text, names))


def _short(branch: Node) -> str:
    return (branch.name or branch.kind).rpartition(".")[2]


def _decimal(schema: Mapping[str, Any], size: int) -> pa.DataType | None:
    """The type of a decimal; None where the specification says: take the bytes."""
    precision, scale = schema.get("precision", 0), schema.get("scale", 0)
    if not all(type(number) is int for number in (precision, scale)):
        return None
    if not precision > 0 or not 0 <= scale <= precision:
        return None
    if size and precision > math.floor(math.log10(2) * (8 * size - 1)):
        return None
    if precision > 76:
        msg = f"a decimal has {precision} digits, 76 are possible"
        raise SchemaRefused(msg)
    return (pa.decimal128 if precision <= 38 else pa.decimal256)(precision, scale)


def _default(node: Node, value: Any, where: str) -> Any:
    """A default, from JSON to what a reader of this node answers."""
    try:
        return _from_json(node, value)
    except (KeyError, TypeError, ValueError, AttributeError):
        msg = f"a default in record {where!r} is not of the type of its field"
        raise SchemaRefused(msg) from None


def _from_json(node: Node, value: Any) -> Any:
    kind = node.kind
    if kind in ("option", "union"):
        # The first branch by the specification; what fits another is meant so.
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
        _want(value, list)
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
    _want(value, wanted.get(kind, str))
    if kind != "boolean" and isinstance(value, bool):
        raise TypeError
    if kind == "enum" and value not in node.names:
        raise ValueError
    return float(value) if kind in ("float", "double") else value


def _want(value: Any, kind: type | tuple[type, ...]) -> None:
    if not isinstance(value, kind):
        raise TypeError


def same(one: Node, other: Node) -> bool:
    """Whether two nodes have the same bytes and the same columns."""
    bare = (
        replace(n, aliases=(), defaults=(), default=None, name="") for n in (one, other)
    )
    first, second = bare
    if replace(first, children=()) != replace(second, children=()):
        return False
    return len(one.children) == len(other.children) and all(
        map(same, one.children, other.children)
    )
