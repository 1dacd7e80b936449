"""From a parsed query to one of DataFusion, with the types of its columns."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Final, final

from streamfactory.engines.common_sql.casts import cast
from streamfactory.engines.common_sql.functions import FUNCTIONS
from streamfactory.engines.common_sql.grammar import Parser
from streamfactory.engines.common_sql.nodes import (
    Call,
    Case,
    Cast,
    Literal,
    Name,
    Operation,
)
from streamfactory.engines.common_sql.tokens import refused
from streamfactory.engines.common_sql.values import (
    BIGINT,
    BOOLEAN,
    DATE,
    DECIMAL,
    DOUBLE,
    INT,
    INTEGERS,
    LAYOUTS,
    NULL,
    TEXT,
    TIMESTAMP,
    Value,
    at,
    checked,
    common,
    converted,
    is_float,
    is_integer,
    ordered,
    quoted,
    sign_changed,
    text,
)
from streamfactory.wiring.core.nearest import nearest

if TYPE_CHECKING:
    import pyarrow as pa

    from streamfactory.engines.common_sql.nodes import Item, Node, Query

_COMPARED: Final = {
    "=": "=",
    "==": "=",
    "<>": "<>",
    "!=": "<>",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
    "<=>": "is not distinct from",
}
_TIMESTAMP: Final = re.compile(
    r"\d{4}-\d\d-\d\d"
    r"(?:[ T]\d\d:\d\d:\d\d(?:\.\d{1,6})?(?:Z|[+-]\d\d:\d\d)?)?",
    re.ASCII,
)
"""Of the forms that Python reads, those that Spark does."""
_DIGITS: Final = 38
"""The most of a decimal in Spark."""
_FAILING: Final = frozenset({"+", "-", "*", "/", "%", "negative"})


def parse(sql: str) -> Query:
    """Parse a query.

    Raises:
        MisuseError: misuse; it is not in the common part.
    """
    return Parser(sql).query()


def translate(query: Query, schema: pa.Schema, table: str) -> str:
    """Translate a query.

    Args:
        query: As `parse` returns it.
        schema: Of the table that it reads.
        table: How DataFusion names the table.

    Raises:
        MisuseError: misuse; it is not in the common part.
    """
    scope = _Scope(schema, (query.alias or query.table).lower())
    columns = [one for item in query.items for one in _columns(item, scope)]
    names = [name for name, _ in columns]
    for name in names:
        if [one.lower() for one in names].count(name.lower()) > 1:
            msg = f"two columns are named {name!r}"
            raise refused(msg, query.items[0].line)
    listed = ", ".join(f"{sql} as {quoted(name)}" for name, sql in columns)
    found = f"select {listed} from {quoted(table)}"  # noqa: S608 - SQL of its user
    if query.where is not None:
        found += f" where {scope.condition(query.where)}"
    return found


def translate_condition(sql: str, schema: pa.Schema) -> str:
    """Translate a condition over a table's columns: an expectation's.

    Raises:
        MisuseError: misuse; it is not in the common part.
    """
    return _Scope(schema, None).condition(Parser(sql).condition())


def _columns(item: Item, scope: _Scope) -> list[tuple[str, str]]:
    if item.value is None:
        without = {scope.column(Name(item.line, name)) for name in item.without}
        kept = [name for name in scope.schema.names if name not in without]
        return [(name, quoted(name)) for name in kept]
    value = scope.value(item.value)
    if isinstance(item.value, Name):
        value = replace(value, sql=quoted(scope.column(item.value)))  # as it is
    if value.type in (NULL, DECIMAL):
        remedy = "name its type: cast(... as double)"
        msg = f"a column of type {value.shown}"
        raise refused(msg, item.line, remedy)
    return [(str(item.name), value.sql)]


@final
@dataclass(frozen=True, slots=True)
class _Scope:
    """The columns that expressions of a query name."""

    schema: pa.Schema
    table: str | None
    """What may stand before the dot of a column, in lower case."""

    def condition(self, node: Node) -> str:
        found = self.value(node)
        if found.type != BOOLEAN:
            msg = f"a condition of type {found.shown}"
            raise refused(msg, node.line)
        return found.sql

    def column(self, node: Name) -> str:
        """The column that a name stands for, whatever its case."""
        if node.of is not None and node.of.lower() != self.table:
            msg = f"{node.of}.{node.name}: a member of a column, or no id"
            raise refused(msg, node.line)
        found = [
            name for name in self.schema.names if name.lower() == node.name.lower()
        ]
        if not found:
            near = nearest(node.name, self.schema.names)
            known = ", ".join(self.schema.names)
            hint = f"did you mean {near}?" if near else f"there are {known}"
            msg = f"there is no column {node.name!r}"
            raise refused(msg, node.line, hint)
        if len(found) > 1:
            msg = f"{node.name!r} names several columns"
            raise refused(msg, node.line)
        return str(found[0])

    def value(self, node: Node) -> Value:
        """Translate an expression."""
        if isinstance(node, Name):
            name = self.column(node)
            kind = self.schema.field(name).type
            if kind in LAYOUTS:
                return Value(converted(quoted(name), TEXT), TEXT, node.line)
            return Value(quoted(name), kind, node.line)
        if isinstance(node, Literal):
            return _literal(node)
        if isinstance(node, Cast):
            return cast(self.value(node.value), node.to, node.line, safe=node.safe)
        if isinstance(node, Case):
            return self._case(node)
        if isinstance(node, Call):
            known = FUNCTIONS[node.name]
            return known([self.value(one) for one in node.arguments], node.line)
        assert isinstance(node, Operation)
        return self._operation(node)

    def _case(self, node: Case) -> Value:
        whens = [self.condition(when) for when, _ in node.branches]
        thens = [self.value(then) for _, then in node.branches]
        last = None if node.otherwise is None else self.value(node.otherwise)
        kind = common([*thens, *([] if last is None else [last])], "case")
        pairs = zip(whens, thens, strict=True)
        found = " ".join(f"when {when} then {at(then, kind)}" for when, then in pairs)
        otherwise = "" if last is None else f" else {at(last, kind)}"
        return Value(f"case {found}{otherwise} end", kind, node.line)

    def _operation(self, node: Operation) -> Value:
        name, line = node.name, node.line
        if name in ("and", "or", "not"):
            conditions = [self.condition(one) for one in node.operands]
            if name == "not":
                return Value(f"(not {conditions[0]})", BOOLEAN, line)
            return Value(_joined(name, conditions, node.operands), BOOLEAN, line)
        if name == "/":
            return _divided([self.value(one) for one in _dividends(node)], line)
        values = [self.value(one) for one in node.operands]
        if name in _COMPARED:
            return _compared(name, values, line)
        if name == "is null":
            return Value(f"({values[0].sql} is null)", BOOLEAN, line)
        if name in ("is true", "is false"):
            return Value(f"({self.condition(node.operands[0])} {name})", BOOLEAN, line)
        if name == "in":
            kind = _comparable(values, line)
            first, *others = (ordered(value, kind) for value in values)
            return Value(f"({first} in ({', '.join(others)}))", BOOLEAN, line)
        if name == "like":
            return _like(values, line)
        if name == "||":
            return FUNCTIONS["concat"](values, line)
        return _computed(name, values, line)


def _joined(word: str, conditions: list[str], nodes: tuple[Node, ...]) -> str:
    """Conditions between ``and`` or ``or``.

    Spark does not evaluate those behind one that decides; DataFusion may, and a row
    that the first condition leaves out would fail in the second.
    """
    if not any(map(_may_fail, nodes[1:])):
        return f"({f' {word} '.join(conditions)})"
    # As numbers, all different: of others DataFusion makes a plain condition again.
    decides, sign = ("false", -1) if word == "and" else ("true", 1)
    pairs = [*enumerate(conditions, 1)]
    found = [f"when {one} is {decides} then {sign * n}" for n, one in pairs]
    found += [f"when {one} is null then null" for one in conditions[:-1]]
    otherwise = "1" if word == "and" else "0"
    last = f"case when {conditions[-1]} is null then null else {otherwise} end"
    return f"(case {' '.join(found)} else {last} end > 0)"


def _may_fail(node: Node) -> bool:
    """Whether an expression may have no value for a row."""
    if isinstance(node, Cast):
        return not node.safe or _may_fail(node.value)
    if isinstance(node, Case):
        pairs = [one for pair in node.branches for one in pair]
        return any(map(_may_fail, filter(None, (*pairs, node.otherwise))))
    if isinstance(node, Call):
        return node.name == "abs" or any(map(_may_fail, node.arguments))
    if isinstance(node, Operation):
        return node.name in _FAILING or any(map(_may_fail, node.operands))
    return False


def _literal(node: Literal) -> Value:
    kind, given, line = node.kind, node.text, node.line
    if kind == "text":
        return Value(text(given), TEXT, line, given)
    if kind == "bool":
        return Value(given, BOOLEAN, line)
    if kind == "null":
        return Value("null", NULL, line)
    if kind == "double":
        return Value(converted(text(given), DOUBLE), DOUBLE, line)
    if kind == "decimal":
        return _decimal(given, line)
    if kind in ("date", "timestamp"):
        return _time(node)
    number = int(given)
    wide = INT if kind == "int" and -(2**31) <= number < 2**31 else BIGINT
    if not -(2**63) <= number < 2**63:
        msg = f"the number {given} is no bigint"
        raise refused(msg, line)
    return Value(converted(text(str(number)), wide), wide, line, str(number))


def _decimal(given: str, line: int) -> Value:
    digits = given.strip("-.").replace(".", "")
    if len(digits) > _DIGITS:
        msg = f"the number {given} has more than {_DIGITS} digits"
        raise refused(msg, line, f"write it as a double: {given}e0")
    signed = given if digits.strip("0") else "0"  # a decimal has no negative zero
    return Value(converted(text(signed), DOUBLE), DECIMAL, line)


def _time(node: Literal) -> Value:
    given = node.text
    try:
        if node.kind == "date":
            if date.fromisoformat(given).isoformat() != given:
                raise ValueError
            return Value(converted(text(given), DATE), DATE, node.line)
        if not _TIMESTAMP.fullmatch(given):
            raise ValueError
        at_time = datetime.fromisoformat(given)
        if at_time.tzinfo is None:
            what = "a timestamp without a time zone depends on that of the session"
            raise refused(what, node.line, "write timestamp '2026-01-01 00:00:00Z'")
        micros = at_time.astimezone(UTC).isoformat(timespec="microseconds")
    except (ValueError, OverflowError):
        what = f"{given!r} is no {node.kind}"
        example = "2026-01-01" if node.kind == "date" else "2026-01-01 00:00:00Z"
        raise refused(what, node.line, f"write {node.kind} '{example}'") from None
    return Value(converted(text(micros), TIMESTAMP), TIMESTAMP, node.line)


def _comparable(values: list[Value], line: int) -> pa.DataType:
    if any(one.type == NULL for one in values):
        msg = "a comparison with null"
        raise refused(msg, line, "use IS NULL")
    return common(values, "a comparison")


def _compared(name: str, values: list[Value], line: int) -> Value:
    kind = _comparable(values, line)
    if kind == BOOLEAN and name in ("<", "<=", ">", ">="):
        msg = "an order of booleans"
        raise refused(msg, line)
    left, right = (ordered(value, kind) for value in values)
    return Value(f"({left} {_COMPARED[name]} {right})", BOOLEAN, line)


def _like(values: list[Value], line: int) -> Value:
    one, pattern = values
    if one.type != TEXT or pattern.type != TEXT or pattern.literal is None:
        msg = "like with other than a literal pattern for a string"
        raise refused(msg, line)
    return Value(f"({one.sql} like {pattern.sql})", BOOLEAN, line)


def _computed(name: str, values: list[Value], line: int) -> Value:
    """An operation of numbers. An integer that is too large is an error."""
    if name == "negative":
        return sign_changed(values[0], "(-{})", "the negative", line)
    kind = _number_of(name, values, line)
    left, right = (at(value, kind) for value in values)
    if name == "%":
        if not is_integer(kind):
            msg = "'%' of floating numbers"
            raise refused(msg, line)
        return Value(f"({left} % {right})", kind, line)
    if is_float(kind):
        return Value(f"({left} {name} {right})", kind, line)
    wide = (
        "bigint" if INTEGERS.index(kind) < INTEGERS.index(BIGINT) else "decimal(20,0)"
    )
    found = f"(cast({left} as {wide}) {name} cast({right} as {wide}))"
    return Value(checked(found, kind), kind, line)


def _number_of(name: str, values: list[Value], line: int) -> pa.DataType:
    """The common type of the operands of an operation of numbers."""
    kind = common(values, f"{name!r}")
    if not is_integer(kind) and not is_float(kind):
        msg = f"{name!r} of {values[0].shown}"
        raise refused(msg, line)
    return kind


def _divided(values: list[Value], line: int) -> Value:
    """Spark divides as doubles, and fails for zero.

    A chain of divisions is one expression: nested ones would repeat each other.
    """
    left = values[0]
    for value in values[1:]:
        _number_of("/", [left, value], line)
        left = Value("", DOUBLE, line)
    operands = [at(value, DOUBLE) for value in values]
    # The divisor is evaluated first in Spark: whatever is divided by null is null.
    missing = " or ".join(f"{one} is null" for one in operands)
    branches = [f"when {missing} then null"]
    for value, divisor in zip(values[1:], operands[1:], strict=True):
        zero = f"{ordered(value, DOUBLE)} = {converted('0', DOUBLE)}"
        failing = f"cast(1 / cast({divisor} as bigint) as double)"
        branches.append(f"when {zero} then {failing}")
    quotient = " / ".join(operands)
    return Value(f"(case {' '.join(branches)} else {quotient} end)", DOUBLE, line)


def _dividends(node: Node) -> list[Node]:
    """The operands of a chain of divisions, from left to right."""
    found: list[Node] = []
    while isinstance(node, Operation) and node.name == "/":
        node, divisor = node.operands
        found.append(divisor)
    return [node, *reversed(found)]
