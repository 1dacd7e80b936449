"""Schemas as text: Spark's DDL, both ways.

``id bigint not null, tags array<string>, at timestamp`` and so on. ``timestamp`` is
microseconds in UTC, ``timestamp_ntz`` microseconds without a zone.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Final

from streamfactory.spi.arguments import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import TypeAlias

    import pyarrow as pa

    _Other: TypeAlias = Callable[[pa.DataType], str]
    """Names a type that DDL does not have, or refuses it."""

_TOKEN: Final = re.compile(
    r"\s*(`(?:[^`]|``)+`|[A-Za-z_][A-Za-z0-9_]*|[0-9]+|[<>(),:])"
)
_BLANK: Final = re.compile(r"\s*")


@cache
def _simple() -> dict[str, pa.DataType]:
    """Types without parameters; of several names of a type, the first is written."""
    import pyarrow as pa

    return {
        "boolean": pa.bool_(),
        "tinyint": pa.int8(),
        "byte": pa.int8(),
        "smallint": pa.int16(),
        "short": pa.int16(),
        "int": pa.int32(),
        "integer": pa.int32(),
        "bigint": pa.int64(),
        "long": pa.int64(),
        "float": pa.float32(),
        "real": pa.float32(),
        "double": pa.float64(),
        "string": pa.string(),
        "binary": pa.binary(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestamp_ntz": pa.timestamp("us"),
    }


@cache
def _names() -> Mapping[pa.DataType, str]:
    return {kind: name for name, kind in reversed(_simple().items())}


@cache
def _arrow_names() -> Mapping[str, str]:
    return {str(kind): name for kind, name in _names().items()}


@cache
def _arrow_types() -> re.Pattern[str]:
    names = "|".join(map(re.escape, _arrow_names()))
    return re.compile(rf"(?:(?<= to )|(?<= from ))(?:{names})(?![\w\[])")


def parse_ddl(text: str) -> pa.Schema:
    """Read a schema.

    Raises:
        ValueError: The text is not a schema; the message says where.
    """
    import pyarrow as pa

    try:
        return pa.schema(_Parser(text).fields())
    except RecursionError:
        msg = "is nested too deeply"
        raise ValueError(msg) from None


def to_ddl(schema: pa.Schema) -> str:
    """Write a schema so that `parse_ddl` reads it.

    Raises:
        ValueError: A type has no DDL name (unsigned numbers, dictionaries, ...).
    """
    return ", ".join(_field_text(field, " ", _refuse) for field in schema)


def type_text(kind: pa.DataType) -> str:
    """Name a type in a message: by its DDL, and by Arrow's name where it has none."""
    return _type_text(kind, str)


def named_in_ddl(text: str) -> str:
    """Replace the names of types in a message of Arrow by those of `type_text`.

    Only after the words that precede types there, so that values are left as they are.
    """
    return _arrow_types().sub(lambda found: _arrow_names()[found[0]], text)


def columns_text(schema: Iterable[pa.Field]) -> str:
    """Names and types of columns, for messages."""
    texts = [f"{field.name} {type_text(field.type)}" for field in schema]
    return ", ".join(texts) or "no columns"


def refuse_repeated(names: Iterable[str]) -> None:
    """Refuse a repeated column name.

    Raises:
        ValueError: A name is repeated; the message has the first one alphabetically.
    """
    twice = min((name for name, n in Counter(names).items() if n > 1), default=None)
    if twice is not None:
        msg = f"has column {twice!r} twice"
        raise ValueError(msg)


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._word = ""
        self._next()

    def fields(self) -> list[pa.Field]:
        found = [self._field(":", optional=True)]
        while self._take(","):
            found.append(self._field(":", optional=True))
        if self._word:
            self._fail("a comma")
        refuse_repeated(field.name for field in found)
        return found

    def _field(self, separator: str, *, optional: bool) -> pa.Field:
        name = self._name()
        if not self._take(separator) and not optional:
            self._fail(repr(separator))
        kind = self._type()
        nullable = True
        if self._word.lower() == "not":
            self._next()
            if self._word.lower() != "null":
                self._fail("null")
            self._next()
            nullable = False
        import pyarrow as pa

        return pa.field(name, kind, nullable=nullable)

    def _name(self) -> str:
        name = self._word
        if not name or name in "<>(),:" or name.isdecimal():
            self._fail("a column name")
        self._next()
        return name[1:-1].replace("``", "`") if name[0] == "`" else name

    def _type(self) -> pa.DataType:
        import pyarrow as pa

        word = self._word.lower()
        if word in _simple():
            self._next()
            return _simple()[word]
        if word not in ("decimal", "array", "map", "struct"):
            self._fail("a type")
        self._next()
        if word == "decimal":
            return self._decimal()
        self._need("<")
        if word == "array":
            kind = pa.list_(self._type())
        elif word == "map":
            key = self._type()
            self._need(",")
            kind = pa.map_(key, self._type())
        else:
            fields = [self._field(":", optional=True)]
            while self._take(","):
                fields.append(self._field(":", optional=True))
            kind = pa.struct(fields)
        self._need(">")
        return kind

    def _decimal(self) -> pa.DataType:
        import pyarrow as pa

        if not self._take("("):
            return pa.decimal128(10, 0)
        precision = self._number()
        scale = self._number() if self._take(",") else 0
        self._need(")")
        if not 1 <= precision <= 38 or scale > precision:
            msg = (
                f"has decimal({precision},{scale}): the precision is at most 38, "
                "the scale at most the precision"
            )
            raise ValueError(msg)
        return pa.decimal128(precision, scale)

    def _number(self) -> int:
        if not self._word.isdecimal() or len(self._word) > 9:
            self._fail("a number")
        value = int(self._word)
        self._next()
        return value

    def _take(self, mark: str) -> bool:
        if self._word != mark:
            return False
        self._next()
        return True

    def _need(self, mark: str) -> None:
        if not self._take(mark):
            self._fail(repr(mark))

    def _next(self) -> None:
        match = _TOKEN.match(self._text, self._at)
        if match is None and _BLANK.fullmatch(self._text, self._at):
            self._word = ""
            return
        if match is None:
            msg = f"cannot be read at {self._text[self._at : self._at + 20]!r}"
            raise ValueError(msg)
        self._word, self._at = match[1], match.end()

    def _fail(self, wanted: str) -> None:
        found = repr(self._word) if self._word else "the end"
        msg = f"is not a schema: found {found}, expected {wanted}"
        raise ValueError(msg)


def _field_text(field: pa.Field, separator: str, other: _Other) -> str:
    plain = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", field.name)
    name = field.name if plain else f"`{field.name.replace('`', '``')}`"
    suffix = "" if field.nullable else " not null"
    return f"{name}{separator}{_type_text(field.type, other)}{suffix}"


def _type_text(kind: pa.DataType, other: _Other) -> str:
    import pyarrow as pa

    if kind in _names():
        return _names()[kind]
    if pa.types.is_decimal128(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_list(kind):
        return f"array<{_type_text(kind.value_type, other)}>"
    if pa.types.is_map(kind):
        parts = (_type_text(part, other) for part in (kind.key_type, kind.item_type))
        return f"map<{','.join(parts)}>"
    if pa.types.is_struct(kind):
        return f"struct<{','.join(_field_text(field, ':', other) for field in kind)}>"
    return other(kind)


def _refuse(kind: pa.DataType) -> str:
    msg = f"type {kind} has no DDL name"
    raise ValueError(msg)


def _schema(value: object) -> pa.Schema:
    import pyarrow as pa

    if isinstance(value, pa.Schema):
        return value
    if hasattr(value, "__arrow_c_schema__"):
        return pa.schema(value)
    if not isinstance(value, str):
        raise TypeError
    return parse_ddl(value)


SCHEMA: Final = Kind("pass a pyarrow.Schema, or Spark DDL such as 'id int'", _schema)
"""Of arguments of public functions."""
