"""Casts of the common part. One that fails is an error, as in Spark's ANSI mode."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from streamfactory.engines.common_sql.tokens import refused
from streamfactory.engines.common_sql.values import (
    BOOLEAN,
    DATE,
    DECIMAL,
    DOUBLE,
    INTEGERS,
    NAMES,
    NULL,
    TEXT,
    TYPES,
    Value,
    checked,
    converted,
    is_float,
    is_integer,
)

if TYPE_CHECKING:
    import pyarrow as pa

_BLANK: Final = "".join(chr(code) for code in (*range(1, 33), 127))
"""What Spark trims before it reads a value."""
_YES: Final = ("t", "true", "y", "yes", "1")
_NO: Final = ("f", "false", "n", "no", "0")
_LOOKS: Final = {
    **dict.fromkeys(INTEGERS, "^[+-]?[0-9]+$"),
    DOUBLE: "^[+-]?([0-9]+([.][0-9]*)?|[.][0-9]+)([eE][+-]?[0-9]{1,3})?$",
    DATE: "^[0-9]{4}-[0-9]{2}-[0-9]{2}$",
    BOOLEAN: f"^({'|'.join((*_YES, *_NO))})$",
}
"""Texts that are cast, without blanks around them; booleans in lower case."""


def cast(value: Value, to: str, line: int, *, safe: bool) -> Value:
    """Translate a cast.

    Args:
        value: What is cast.
        to: Name of the type.
        line: Of the cast.
        safe: Whether it is ``try_cast``.

    Raises:
        MisuseError: misuse; the engines may differ.
    """
    kind = TYPES.get(to)
    if kind is None:
        known = ", ".join(sorted(TYPES))
        msg = f"a cast to {to}; there are {known}"
        raise refused(msg, line)
    sql = _cast(value, kind, safe=safe)
    if sql is None:
        word = "try_cast" if safe else "cast"
        what = f"{word} of {value.shown} to {NAMES[kind]}: the engines differ"
        raise refused(what, line)
    return Value(sql, kind, line)


def _cast(value: Value, kind: pa.DataType, *, safe: bool) -> str | None:
    """SQL of the cast; None if the engines may differ."""
    source = value.type
    if source == NULL:
        return converted("null", kind)
    if source == kind:
        return value.sql
    if source == DECIMAL:
        return converted(value.sql, kind) if is_float(kind) else None
    if source == TEXT:
        return _of_text(value, kind, safe=safe)
    if is_integer(source) or source == BOOLEAN:
        return _of_integer(value, kind, safe=safe)
    if is_float(source) and not safe and (is_integer(kind) or is_float(kind)):
        return checked(value.sql, kind)
    if source == DATE and kind == TEXT:
        # Years of other than four digits have signs of their own in Spark.
        plain = f"date_part('year', {value.sql}) between 0 and 9999"
        found, failing = converted(value.sql, TEXT), _failing(value.sql)
        return f"case when {plain} then {found} else {failing} end"
    return None


def _of_integer(value: Value, kind: pa.DataType, *, safe: bool) -> str | None:
    if kind == BOOLEAN:
        return f"({value.sql} <> 0)"
    if is_integer(kind) or is_float(kind) or kind == TEXT:
        return checked(value.sql, kind, safe=safe)
    return None


def _of_text(value: Value, kind: pa.DataType, *, safe: bool) -> str | None:
    looks = _LOOKS.get(kind)
    if looks is None or (safe and kind in (DOUBLE, DATE)):
        return None
    trimmed = f"btrim({value.sql}, '{_BLANK}')"
    found = converted(trimmed, kind, safe=safe)
    if kind == BOOLEAN:
        trimmed = f"lower({trimmed})"
        yes = ", ".join(f"'{one}'" for one in _YES)
        found = f"({trimmed} in ({yes}))"
    if value.literal is not None:
        # DataFusion evaluates constants when it plans, branches that fail too.
        given = value.literal.strip(_BLANK)
        fine = re.fullmatch(looks, given.lower() if kind == BOOLEAN else given)
        return found if fine else None
    otherwise = "null" if safe else converted(_failing(value.sql), kind)
    return (
        f"case when regexp_like({trimmed}, '{looks}') then {found} else {otherwise} end"
    )


def _failing(sql: str) -> str:
    """A text of DataFusion that fails for a value, and is null for null."""
    shown = f"'cannot cast: ' || left(cast({sql} as varchar), 100)"
    return f"cast(cast({shown} as int) as varchar)"
