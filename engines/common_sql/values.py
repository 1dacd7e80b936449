"""Typed expressions of DataFusion's SQL, and how types come together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from streamfactory.engines.common_sql.tokens import refused

BOOLEAN: Final = pa.bool_()
INT: Final = pa.int32()
BIGINT: Final = pa.int64()
FLOAT: Final = pa.float32()
DOUBLE: Final = pa.float64()
TEXT: Final = pa.string()
LAYOUTS: Final = frozenset({pa.large_string(), pa.string_view()})
"""Types whose values are those of `TEXT`, which columns are cast to."""
DATE: Final = pa.date32()
TIMESTAMP: Final = pa.timestamp("us", "UTC")
INTEGERS: Final = (pa.int8(), pa.int16(), INT, BIGINT)
"""From the narrowest to the widest."""
NAMES: Final = {
    BOOLEAN: "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    INT: "int",
    BIGINT: "bigint",
    FLOAT: "float",
    DOUBLE: "double",
    TEXT: "string",
    DATE: "date",
    TIMESTAMP: "timestamp",
}
"""Types of which values are computed, as Spark names them. A column of another type is
passed on as it is, and compared with null only."""
_SQL: Final = {FLOAT: "float", TEXT: "varchar"}
_LONGEST: Final = 200_000
"""Characters of an expression for DataFusion. Some forms repeat their operands, so that
a short text which nests them would have gigabytes."""
DECIMAL: Final = pa.decimal256(76, 76)
"""Stands for a literal such as 1.5, which is compared and computed with floating
numbers only. No column of Spark has it: its decimals have 38 digits."""
NULL: Final = pa.null()
TYPES: Final = {
    **{name: kind for kind, name in NAMES.items()},
    "integer": INT,
    "long": BIGINT,
    "short": pa.int16(),
    "byte": pa.int8(),
    "real": FLOAT,
}
"""Types that a cast may name, but `TIMESTAMP`, which depends on the time zone."""


@dataclass(frozen=True, slots=True)
class Value:
    """An expression of DataFusion and its type."""

    sql: str
    type: pa.DataType
    line: int
    literal: str | None = None
    """The text of a literal."""

    def __post_init__(self) -> None:
        if len(self.sql) > _LONGEST:
            msg = "the expression is too long, or nests too many operators"
            raise refused(msg, self.line, "compute parts of it in a step before")

    @property
    def shown(self) -> str:
        """Its type in messages."""
        if self.type == DECIMAL:
            return "decimal"
        return NAMES.get(self.type, str(self.type))


def quoted(name: str) -> str:
    """A name, for DataFusion."""
    return '"{}"'.format(name.replace('"', '""'))


def text(value: str) -> str:
    """A text, for DataFusion."""
    return "'{}'".format(value.replace("'", "''"))


def is_integer(kind: pa.DataType) -> bool:
    """Whether it is one of the integers."""
    return kind in INTEGERS


def is_float(kind: pa.DataType) -> bool:
    """Whether it is a floating number."""
    return kind in (FLOAT, DOUBLE)


def converted(sql: str, kind: pa.DataType, *, safe: bool = False) -> str:
    """A cast of DataFusion."""
    if kind == TIMESTAMP:  # DataFusion's own has nanoseconds and no time zone
        return f"arrow_cast({sql}, 'Timestamp(Microsecond, Some(\"UTC\"))')"
    word = "try_cast" if safe else "cast"
    return f"{word}({sql} as {_SQL.get(kind, NAMES.get(kind))})"


def checked(sql: str, kind: pa.DataType, *, safe: bool = False) -> str:
    """A cast that is evaluated, whatever its value is compared with.

    DataFusion compares the value before a cast where it can: then one that is too large
    for the type does not fail.
    """
    return f"greatest({converted(sql, kind, safe=safe)})"


def sign_changed(one: Value, sql: str, what: str, line: int) -> Value:
    """A number whose sign is dropped or changed; one too large for its type fails.

    Args:
        one: The number.
        sql: What is computed, with ``{}`` for the number.
        what: The operation, for messages.
        line: Of the operation.
    """
    if is_float(one.type):
        return Value(sql.format(one.sql), one.type, line)
    if not is_integer(one.type):
        msg = f"{what} of {one.shown}"
        raise refused(msg, line)
    # The least integer has no counterpart of its type.
    wide = sql.format(f"cast({one.sql} as decimal(20,0))")
    return Value(checked(wide, one.type), one.type, line)


def common(values: list[Value], what: str) -> pa.DataType:
    """The type in which Spark compares values, or takes one of them.

    Raises:
        MisuseError: misuse; they have none, or the engines differ.
    """
    kinds = {value.type for value in values} - {NULL}
    line = values[0].line
    shown = " and ".join(sorted({one.shown for one in values if one.type != NULL}))
    if not kinds:
        msg = f"{what} of null alone"
        raise refused(msg, line, "name the type: cast(... as ...)")
    if len(kinds) == 1 and kinds <= NAMES.keys():
        return kinds.pop()
    if all(map(is_integer, kinds)):
        return max(kinds, key=INTEGERS.index)
    numbers = all(is_integer(k) or is_float(k) or k == DECIMAL for k in kinds)
    if numbers and DOUBLE in kinds:
        return DOUBLE
    if kinds <= {FLOAT, DECIMAL} and FLOAT in kinds:
        return DOUBLE
    remedy = "cast one of them, as in cast(... as double) or cast(... as string)"
    msg = f"{what} of {shown}"
    raise refused(msg, line, remedy)


def at(value: Value, kind: pa.DataType) -> str:
    """A value in the common type."""
    if value.type == kind:
        return value.sql
    return converted(value.sql, kind)


def ordered(value: Value, kind: pa.DataType) -> str:
    """A value as it is compared: Spark has one NaN and one zero, Arrow many."""
    found = at(value, kind)
    if not is_float(kind):
        return found
    nan = converted("'NaN'", kind)
    return f"nanvl({found} + {converted('0', kind)}, {nan})"
