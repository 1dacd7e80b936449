"""The functions of the common part, in Spark's names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from streamfactory.engines.common_sql.tokens import refused
from streamfactory.engines.common_sql.values import (
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    NULL,
    TEXT,
    Value,
    at,
    common,
    converted,
    is_integer,
    ordered,
    sign_changed,
    text,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Translation = Callable[[Sequence[Value], int], Value]

_CLASS: Final = r"\[\^?(?:[A-Za-z0-9]-[A-Za-z0-9]|[A-Za-z0-9 @_,.:;/])+\]"
_SAFE: Final = rf"[A-Za-z0-9 @_,:;&=<>/~'\"-]|{_CLASS}"
_PATTERN: Final = re.compile(
    rf"\^?(?:(?:{_SAFE})(?:\+|\{{[1-9]\d?(?:,[1-9]\d?)?\}})?)+"
)
"""Regular expressions that both engines read alike: characters, classes of ASCII and
repetitions that are not empty."""


def _texts(name: str, count: int) -> Callable[[Sequence[Value], int], None]:
    """Checks that the arguments are that many texts."""

    def check(given: Sequence[Value], line: int) -> None:
        _check_count(name, given, line, count)
        for one in given:
            if one.type != TEXT:
                what = f"{name} of {one.shown}, wanted string"
                raise refused(what, line, "cast it: cast(... as string)")

    return check


def _check_count(
    name: str, given: Sequence[Value], line: int, least: int, most: int | None = None
) -> None:
    if not least <= len(given) <= (most or least):
        what = (
            f"{name} takes {least}"
            if most is None
            else f"{name} takes {least} to {most}"
        )
        msg = f"{what} arguments, given {len(given)}"
        raise refused(msg, line)


def _plain(name: str, form: str, count: int = 1, kind: object = TEXT) -> Translation:
    """A function of texts alone."""
    check = _texts(name, count)

    def translate(given: Sequence[Value], line: int) -> Value:
        check(given, line)
        return Value(form.format(*(one.sql for one in given)), kind, line)

    return translate


def _number(name: str, value: Value, least: int) -> int:
    """A literal integer of at least a number, and within an int."""
    whole = value.literal is not None and is_integer(value.type)
    if not whole or not least <= int(str(value.literal)) < 2**31:
        what = f"{name} with other than a literal int from {least} on"
        raise refused(what, value.line)
    return int(str(value.literal))


def _substring(given: Sequence[Value], line: int) -> Value:
    _check_count("substring", given, line, 2, 3)
    _texts("substring", 1)(given[:1], line)
    numbers = [str(_number("substring", given[1], 1))]
    numbers += [str(_number("substring", one, 0)) for one in given[2:]]
    return Value(f"substr({given[0].sql}, {', '.join(numbers)})", TEXT, line)


def _end(name: str) -> Translation:
    def translate(given: Sequence[Value], line: int) -> Value:
        _check_count(name, given, line, 2)
        _texts(name, 1)(given[:1], line)
        count = _number(name, given[1], 0)
        return Value(f"{name}({given[0].sql}, {count})", TEXT, line)

    return translate


def _literal(name: str, value: Value, wanted: str) -> str:
    if value.type != TEXT or not value.literal:
        msg = f"{name} with other than {wanted}"
        raise refused(msg, value.line)
    return value.literal


def _replace(given: Sequence[Value], line: int) -> Value:
    _texts("replace", 3)(given, line)
    sought = _literal("replace", given[1], "a literal text that is not empty")
    form = f"replace({given[0].sql}, {text(sought)}, {given[2].sql})"
    return Value(form, TEXT, line)


def _pattern(name: str, value: Value) -> str:
    found = _literal(name, value, "a literal pattern")
    if _PATTERN.fullmatch(found) is None:
        what = (
            f"{name} with the pattern {found!r}: of patterns only characters, classes "
        )
        what += "such as [0-9a-f] or [^@], and repetitions + and {2} are alike"
        raise refused(what, value.line)
    try:
        re.compile(found)
    except re.error as error:
        what = f"{name} with the pattern {found!r}: {error}"
        raise refused(what, value.line, "correct the pattern") from None
    return found


def _regexp_replace(given: Sequence[Value], line: int) -> Value:
    _texts("regexp_replace", 3)(given, line)
    pattern = _pattern("regexp_replace", given[1])
    other = given[2].literal
    if other is None or re.search(r"[$\\]", other):
        what = "regexp_replace with other than a literal replacement without $"
        raise refused(what, given[2].line)
    form = f"regexp_replace({given[0].sql}, {text(pattern)}, {text(other)}, 'g')"
    return Value(form, TEXT, line)


def _regexp_like(given: Sequence[Value], line: int) -> Value:
    _texts("regexp_like", 2)(given, line)
    pattern = text(_pattern("regexp_like", given[1]))
    return Value(f"regexp_like({given[0].sql}, {pattern})", BOOLEAN, line)


def _sha2(given: Sequence[Value], line: int) -> Value:
    _check_count("sha2", given, line, 2)
    _texts("sha2", 1)(given[:1], line)
    bits = _number("sha2", given[1], 224)
    if bits not in (224, 256, 384, 512):
        msg = f"sha2 with {bits} bits"
        raise refused(msg, line)
    return Value(f"encode(sha{bits}({given[0].sql}), 'hex')", TEXT, line)


def _coalesce(given: Sequence[Value], line: int) -> Value:
    _check_count("coalesce", given, line, 1, 100)
    kind = common(list(given), "coalesce")
    values = ", ".join(at(one, kind) for one in given)
    return Value(f"coalesce({values})", kind, line)


def _if(given: Sequence[Value], line: int) -> Value:
    _check_count("if", given, line, 3)
    condition, yes, no = given
    if condition.type != BOOLEAN:
        msg = f"if of {condition.shown}, wanted boolean"
        raise refused(msg, line)
    kind = common([yes, no], "if")
    form = f"case when {condition.sql} then {at(yes, kind)} else {at(no, kind)} end"
    return Value(form, kind, line)


def _nullif(given: Sequence[Value], line: int) -> Value:
    _check_count("nullif", given, line, 2)
    kind = common(list(given), "nullif")
    first, second = (ordered(one, kind) for one in given)
    own = given[0]
    if own.type == NULL:
        msg = "nullif of null"
        raise refused(msg, line)
    return Value(
        f"case when {first} = {second} then null else {own.sql} end", own.type, line
    )


def _abs(given: Sequence[Value], line: int) -> Value:
    _check_count("abs", given, line, 1)
    return sign_changed(given[0], "abs({})", "abs", line)


def _isnan(given: Sequence[Value], line: int) -> Value:
    _check_count("isnan", given, line, 1)
    if given[0].type not in (FLOAT, DOUBLE):
        msg = f"isnan of {given[0].shown}"
        raise refused(msg, line, "it is not a floating number")
    return Value(f"coalesce(isnan({given[0].sql}), false)", BOOLEAN, line)


def _null(form: str) -> Translation:
    def translate(given: Sequence[Value], line: int) -> Value:
        _check_count(form, given, line, 1)
        return Value(f"({given[0].sql} {form})", BOOLEAN, line)

    return translate


def _part(name: str) -> Translation:
    def translate(given: Sequence[Value], line: int) -> Value:
        _check_count(name, given, line, 1)
        if given[0].type != DATE:
            what = f"{name} of {given[0].shown}: it depends on the session's time zone"
            raise refused(what, line)
        form = f"date_part('{name}', {given[0].sql})"
        return Value(converted(form, INT), INT, line)

    return translate


def _concat(given: Sequence[Value], line: int) -> Value:
    _check_count("concat", given, line, 1, 100)
    _texts("concat", len(given))(given, line)
    return Value(f"({' || '.join(one.sql for one in given)})", TEXT, line)


_LENGTH: Final = _plain("length", "cast(character_length({}) as int)", kind=INT)
_LOWER: Final = _plain("lower", "lower({})")
_UPPER: Final = _plain("upper", "upper({})")
FUNCTIONS: Final[dict[str, Translation]] = {
    "abs": _abs,
    "char_length": _LENGTH,
    "character_length": _LENGTH,
    "coalesce": _coalesce,
    "concat": _concat,
    "contains": _plain("contains", "contains({}, {})", 2, BOOLEAN),
    "day": _part("day"),
    "endswith": _plain("endswith", "ends_with({}, {})", 2, BOOLEAN),
    "if": _if,
    "ifnull": _coalesce,
    "isnan": _isnan,
    "isnotnull": _null("is not null"),
    "isnull": _null("is null"),
    "left": _end("left"),
    "length": _LENGTH,
    "lower": _LOWER,
    "lcase": _LOWER,
    "ltrim": _plain("ltrim", "ltrim({})"),
    "md5": _plain("md5", "cast(md5({}) as varchar)"),
    "month": _part("month"),
    "nullif": _nullif,
    "nvl": _coalesce,
    "regexp_like": _regexp_like,
    "regexp_replace": _regexp_replace,
    "replace": _replace,
    "right": _end("right"),
    "rtrim": _plain("rtrim", "rtrim({})"),
    "sha2": _sha2,
    "startswith": _plain("startswith", "starts_with({}, {})", 2, BOOLEAN),
    "substr": _substring,
    "substring": _substring,
    "trim": _plain("trim", "btrim({})"),
    "ucase": _UPPER,
    "upper": _UPPER,
    "year": _part("year"),
}
"""By their names in lower case."""
