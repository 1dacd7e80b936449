"""JSON as expressions of Spark, with the results of the decoder and encoder ``json``.

The parser of variants keeps the type of each value, so that the rules of the decoder
can be checked: a number is no text, and 1.0 is no integer. Functions that cast what
they find, such as ``from_json``, read other rows.
"""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING, Final

from pyspark.sql import types as t

from streamfactory.spi.nesting import DEEPEST

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROW: Final = "__row"
WRONG: Final = "__wrong"
_VARIANT: Final = "__json"
_INTEGERS: Final[dict[type[t.DataType], int]] = {
    t.ByteType: 8,
    t.ShortType: 16,
    t.IntegerType: 32,
    t.LongType: 64,
}
_LARGEST: Final = "1.7976931348623157E308D"
_NAME: Final = re.compile("[A-Za-z_][A-Za-z0-9_]*")


def unreadable(kind: t.DataType, path: str = "") -> str | None:
    """Why columns of a type are not decoded here; None if they are.

    Args:
        kind: The type.
        path: Dotted path of the column, for the text.
    """
    if isinstance(kind, t.StructType):
        for field in kind.fields:
            inner = f"{path}.{field.name}" if path else field.name
            if _NAME.fullmatch(field.name) is None:
                return (
                    f"the name {inner!r} has characters other than ASCII letters, "
                    "digits and _, or begins with a digit"
                )
            reason = unreadable(field.dataType, inner)
            if reason is not None:
                return reason
        return None
    if isinstance(kind, t.ArrayType):
        return unreadable(kind.elementType, f"{path}.element")
    if type(kind) in {t.StringType, t.BooleanType, t.DoubleType, *_INTEGERS}:
        return None
    return (
        f"column {path!r} is {kind.simpleString()}: Spark's functions read string, "
        "boolean, tinyint to bigint, double, and structs and arrays of them as the "
        "decoder does"
    )


def unwritable(kind: t.DataType, path: str = "") -> str | None:
    """Why columns of a type are not encoded here; None if they are."""
    reason = unreadable(kind, path)
    if reason is None and _doubles_in_arrays(kind, within=False):
        reason = f"column {path!r} has an array with double: NaN in it is not found"
    return reason


def _doubles_in_arrays(kind: t.DataType, *, within: bool) -> bool:
    if isinstance(kind, t.StructType):
        fields = kind.fields
        return any(_doubles_in_arrays(one.dataType, within=within) for one in fields)
    if isinstance(kind, t.ArrayType):
        return _doubles_in_arrays(kind.elementType, within=True)
    return within and isinstance(kind, t.DoubleType)


# --- decoding --------------------------------------------------------------------


def decode_json(messages: DataFrame, schema: t.StructType) -> DataFrame:
    """The rows of messages as a column `ROW`, beside the columns of the messages.

    The query fails at a message that the decoder would refuse, with its topic,
    partition and offset. A message without a value is a row of nulls.

    Args:
        messages: Has the columns ``value``, ``topic``, ``partition`` and ``offset``.
        schema: Of the rows, without columns that `unreadable` refuses.
    """
    place = "'topic ', topic, ', partition ', partition, ', offset ', offset, ': '"
    failure = f"boolean(raise_error(concat({place}, {WRONG})))"
    fine = f"case when {WRONG} is null then true else {failure} end"
    return judge_json(messages, schema).where(fine).drop(WRONG)


def judge_json(messages: DataFrame, schema: t.StructType) -> DataFrame:
    """As `decode_json`, with a column `WRONG`: why a message is refused, or null."""
    # The parser stops behind the first value. So that nothing may follow the message,
    # it is the first of two elements, and no message can contain the second.
    mark = secrets.token_hex(16)
    text = "string(value)"
    parsed = f"""try_parse_json(concat('[', {text}, ',"{mark}"]'))"""
    root = f"variant_get({_VARIANT}, '$[0]', 'variant')"
    alone = f"try_variant_get({_VARIANT}, '$[1]', 'string') <=> '{mark}'"
    checks = [
        (f"is_valid_utf8({text})", "the message is not valid UTF-8"),
        (alone, "the message is not JSON"),
        (_shallow(text), "the message is nested too deeply"),
        (_is_object(root), "the message does not fit the schema: expected an object"),
    ]
    for field in schema.fields:
        kind = field.dataType.simpleString()
        what = f"column {field.name} does not contain a valid {kind}"
        fits = _fits_field(root, field.name, field.dataType, nullable=field.nullable)
        checks.append((fits, what))
    cases = " ".join(f"when not ({fits}) then '{what}'" for fits, what in checks)
    parts = [
        f"'{one.name}', {_value(_field(root, one.name), one.dataType)}"
        for one in schema.fields
    ]
    return messages.selectExpr("*", f"{parsed} as {_VARIANT}").selectExpr(
        *(f"`{name}`" for name in messages.columns),
        f"named_struct({', '.join(parts)}) as {ROW}",
        f"case when value is null then null {cases} end as {WRONG}",
    )


def _shallow(text: str) -> str:
    """A condition: whether a message is nested no deeper than the decoder allows."""
    strings = r"""r'"(?:[^"\\]++|\\.)*+"'"""
    outside = f"regexp_replace({text}, {strings}, '')"
    brackets = f"regexp_replace({outside}, r'[^\\[\\]{{}}]', '')"
    step = "if(c in ('[', '{'), 1, -1)"
    deepest = (
        f"aggregate(split({brackets}, ''), struct(0 as d, 0 as m), (a, c) -> "
        f"struct(a.d + {step} as d, greatest(a.m, a.d + {step}) as m), a -> a.m)"
    )
    opening = f"length({text}) - length(translate({text}, '[{{', ''))"
    return f"({opening} <= {DEEPEST} or {deepest} <= {DEEPEST})"


def _field(parent: str, name: str) -> str:
    return f"variant_get({parent}, '$.{name}', 'variant')"


def _is_object(variant: str) -> str:
    return f"try_variant_get({variant}, '$', 'map<string,variant>') is not null"


def _fits_field(parent: str, name: str, kind: t.DataType, *, nullable: bool) -> str:
    return _fits(_field(parent, name), kind, nullable=nullable)


def _fits(variant: str, kind: t.DataType, *, nullable: bool) -> str:
    """A condition, never null: whether a value has the type."""
    found = f"schema_of_variant({variant})"
    if isinstance(kind, t.StructType):
        fields = [
            _fits_field(variant, one.name, one.dataType, nullable=one.nullable)
            for one in kind.fields
        ]
        fits = " and ".join([_is_object(variant), *fields])
    elif isinstance(kind, t.ArrayType):
        inner = _fits("x", kind.elementType, nullable=kind.containsNull)
        elements = f"try_variant_get({variant}, '$', 'array<variant>')"
        fits = f"coalesce(forall({elements}, x -> {inner}), false)"
    elif type(kind) in _INTEGERS:
        most = 1 << _INTEGERS[type(kind)] - 1
        number = f"try_variant_get({variant}, '$', 'bigint')"
        low = "-9223372036854775807L - 1" if most == 1 << 63 else f"{-most}L"
        fits = f"{found} <=> 'BIGINT' and {number} between {low} and {most - 1}L"
    elif isinstance(kind, t.DoubleType):
        number = f"try_variant_get({variant}, '$', 'double')"
        fits = f"coalesce({found} in ('BIGINT', 'DOUBLE') or {found} like 'DECIMAL%', "
        fits += f"false) and {number} between -{_LARGEST} and {_LARGEST}"
    else:
        name = "STRING" if isinstance(kind, t.StringType) else "BOOLEAN"
        fits = f"{found} <=> '{name}'"
    if not nullable:
        return f"({fits})"
    return f"(coalesce({found}, 'VOID') = 'VOID' or {fits})"


def _value(variant: str, kind: t.DataType) -> str:
    """The value of a variant that has the type, or is null."""
    if isinstance(kind, t.StructType):
        parts = [
            f"'{one.name}', {_value(_field(variant, one.name), one.dataType)}"
            for one in kind.fields
        ]
        made = f"named_struct({', '.join(parts)})"
        return f"case when {_is_object(variant)} then {made} end"
    if isinstance(kind, t.ArrayType):
        elements = f"try_variant_get({variant}, '$', 'array<variant>')"
        return f"transform({elements}, x -> {_value('x', kind.elementType)})"
    return f"try_variant_get({variant}, '$', '{kind.simpleString()}')"


# --- encoding --------------------------------------------------------------------


def json_value(schema: t.StructType) -> str:
    """An expression of the JSON of a row, as binary.

    The query fails at NaN and infinities, which JSON cannot represent.

    Args:
        schema: Of the columns, without those that `unwritable` refuses.
    """
    pairs = (f"'{one.name}', `{one.name}`" for one in schema.fields)
    made = (
        f"to_json(named_struct({', '.join(pairs)}), map('ignoreNullFields', 'false'))"
    )
    cases = ""
    for path in _doubles(schema):
        text = f"column {path} contains NaN or an infinity, which JSON cannot represent"
        column = ".".join(f"`{name}`" for name in path.split("."))
        cases += f"when not {column} between -{_LARGEST} and {_LARGEST} "
        cases += f'then string(raise_error("{text}")) '
    return f"binary(case {cases}else {made} end)" if cases else f"binary({made})"


def _doubles(schema: t.StructType, before: str = "") -> list[str]:
    """Dotted paths of the columns of floating numbers."""
    found = []
    for one in schema.fields:
        path = f"{before}{one.name}"
        if isinstance(one.dataType, t.DoubleType):
            found.append(path)
        elif isinstance(one.dataType, t.StructType):
            found += _doubles(one.dataType, f"{path}.")
    return found
