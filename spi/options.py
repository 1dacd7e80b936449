"""Declarations of options, each made once.

Parsing, help, the reference page, JSON Schema and examples all come from `Option`.
Values are strings; an `OptionType` parses them. A bad value is an error, never a
default.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# ASCII only: other programs would not parse other digits as a number.
_WHOLE: Final = re.compile(r"[+-]?[0-9]+")
_DECIMAL: Final = re.compile(
    r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?", re.IGNORECASE
)
_UNITS: Final = (86_400_000, 3_600_000, 60_000, 1_000, 1)
_PERIOD: Final = re.compile(
    r"(?:([0-9]+)d)?\s*(?:([0-9]+)h)?\s*(?:([0-9]+)m(?!s))?\s*"
    r"(?:([0-9]+)s)?\s*(?:([0-9]+)ms)?",
    re.IGNORECASE,
)
_SIZE: Final = re.compile(
    r"([0-9]+)B?|([0-9]+(?:\.[0-9]+)?)\s*([KMGT])(?:i?B)?", re.IGNORECASE
)
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]*")


@dataclass(frozen=True, slots=True)
class OptionType:
    """A type of option values: how their text is parsed.

    Args:
        name: Shown to users: ``integer``, ``period``, ...
        parse: Parses the text; raises ValueError that says what is expected.
        schema: JSON Schema of the text.
        longest: Maximum number of characters; None for no limit.
        path: Whether the text may be a relative path. In the definition of a stream it
            is relative to the folder of its project: it is parsed as an absolute path.
    """

    name: str
    parse: Callable[[str], Any]
    schema: Mapping[str, Any] = field(default_factory=dict)
    longest: int | None = None
    path: bool = False


def whole_number(text: str) -> int:
    """Parse a signed 64-bit integer.

    Raises:
        ValueError: The value is not valid. The message continues a sentence that begins
            with the value.
    """
    stripped = text.strip()
    if _WHOLE.fullmatch(stripped) is None:
        msg = "is not a whole number"
        raise ValueError(msg)
    # Python refuses thousands of digits, with a message about the interpreter.
    digits = stripped.lstrip("+-").lstrip("0") or "0"
    value = int(digits) if len(digits) < 20 else 2**64
    return _sized(-value if stripped[0] == "-" else value)


def _sized(value: int) -> int:
    if not -(2**63) <= value < 2**63:
        msg = "does not fit 64 bits"
        raise ValueError(msg)
    return value


def _number(text: str) -> float:
    if _DECIMAL.fullmatch(text.strip()) is None:
        msg = "is not a number"
        raise ValueError(msg)
    value = float(text)
    if not math.isfinite(value):
        msg = "is not a finite number"
        raise ValueError(msg)
    return value


def _boolean(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered not in ("true", "false"):
        msg = "is neither true nor false"
        raise ValueError(msg)
    return lowered == "true"


def _period(text: str) -> int:
    stripped = text.strip()
    if stripped.isascii() and stripped.isdecimal():
        return whole_number(stripped)
    match = _PERIOD.fullmatch(stripped)
    if not stripped or match is None:
        msg = (
            "is not a duration: write 250ms, 30s, 5m, 4h30m, 1d, or plain milliseconds"
        )
        raise ValueError(msg)
    parts = zip(match.groups(), _UNITS, strict=True)
    return _sized(sum(whole_number(n) * unit for n, unit in parts if n))


def _size(text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        msg = "is not a size: write 8388608, 512K, 150M or 1.1G"
        raise ValueError(msg)
    if match[1]:
        return whole_number(match[1])
    power = "KMGT".index(match[3].upper()) + 1
    if "." not in match[2]:
        return _sized(whole_number(match[2]) * 1024**power)
    # Imported here: few sizes have a fraction.
    from decimal import Decimal

    return _sized(int(Decimal(match[2]) * 1024**power))


def _path(text: str) -> str:
    if not text.strip() or "\0" in text:
        msg = "is not a path"
        raise ValueError(msg)
    # Taken as a path, it would be a folder named `s3:`.
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", text):
        msg = "is a URL, expected a local path"
        raise ValueError(msg)
    try:
        return str(Path(text).expanduser().absolute())
    except RuntimeError:
        msg = "begins with ~ of a user without a home directory"
        raise ValueError(msg) from None


def _list(text: str) -> tuple[str, ...]:
    parts = tuple(part.strip() for part in text.split(","))
    if not all(parts):
        msg = "has an empty entry: write a,b,c"
        raise ValueError(msg)
    return parts


def _json_object(text: str) -> Mapping[str, Any]:
    try:
        value = json.loads(text)
    except RecursionError:
        msg = "is nested too deeply"
        raise ValueError(msg) from None
    except ValueError as error:
        msg = f"is not JSON: {error}"
        raise ValueError(msg) from None
    if not isinstance(value, dict):
        msg = "is not a JSON object"
        raise ValueError(msg)  # noqa: TRY004 - a bad value, not a bad type
    return value


def _schema(text: str) -> str:
    # Parsing loads Arrow: that cost is paid only for options of this type.
    from streamfactory.spi.arrowjson import parse_schema

    parse_schema(text)
    return text


STRING: Final = OptionType("string", str, {"type": "string"})
_WORD: Final = 100
"""Maximum length of a word or number: parsing thousands of digits takes long."""

INTEGER: Final = OptionType("integer", whole_number, {"type": ["string", "integer"]})
NUMBER: Final = OptionType("number", _number, {"type": ["string", "number"]}, _WORD)
BOOLEAN: Final = OptionType("boolean", _boolean, {"type": ["string", "boolean"]}, _WORD)
PERIOD: Final = OptionType("period", _period, {"type": ["string", "integer"]}, _WORD)
"""``4h30m`` or plain milliseconds; the value is milliseconds."""
SIZE: Final = OptionType("size", _size, {"type": ["string", "integer"]}, _WORD)
"""``150M``, ``1.1G``, or plain bytes; binary units; the value is bytes."""
FUNCTION: Final = OptionType("name or module:function", str.strip, {"type": "string"})
"""The value is the text. ``module:function`` requires ``--allow-class-paths``, because
importing runs code."""
PATH: Final = OptionType("path", _path, {"type": "string"}, path=True)
"""Made absolute when parsed: processes differ in their working directory."""
LIST: Final = OptionType("list", _list, {"type": "string"})
"""``a,b,c``; the value is a tuple of strings."""
JSON_OBJECT: Final = OptionType("JSON object", _json_object, {"type": "string"})
SCHEMA: Final = OptionType("schema", _schema, {"type": "string"})
"""Spark's DDL, or Arrow's JSON form; the value is the text, which
`arrowjson.parse_schema` parses."""


def choice(*words: str) -> OptionType:
    """Return the type of one of several values.

    Case-insensitive, spelt as given here.
    """
    by_lower = {word.lower(): word for word in words}

    def parse(text: str) -> str:
        try:
            return by_lower[text.strip().lower()]
        except KeyError:
            msg = f"is not one of {', '.join(words)}"
            raise ValueError(msg) from None

    schema = {"type": "string", "enum": [*words]}
    return OptionType(" or ".join(words), parse, schema, _WORD)


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a backend, a decoder, or the framework.

    Args:
        key: Of a backend: what follows ``stream.<type>.``. Lower case, dotted, with the
            unit in the name (``linger.millis``, ``buffer.bytes``).
        doc: One line, ending in a full stop.
        type: Parses and prints its values.
        default: As text; None with ``required`` false means not set.
        required: Whether a configuration without it is refused.
        secret: Masked everywhere; only for strings; refused as a literal on Spark.
        minimum: The least number, inclusive; None for no limit.
        maximum: The greatest number, inclusive; None for no limit.
        validator: Validates the parsed value; returns the cause of an error, or None.
        aliases: Aliases; conflicting values are an error.
        former: Deprecated aliases: they work with a warning.
        deprecated: The remedy for a deprecated option: using it is a warning.
        no_effect: Why this known key has no effect here: using it is a warning.
        applies: ``read``, ``write``, ``spark``, ...; empty means always.
        example: A value for generated examples.
    """

    key: str
    doc: str
    type: OptionType = STRING
    default: str | None = None
    required: bool = False
    secret: bool = False
    minimum: float | None = None
    maximum: float | None = None
    validator: Callable[[Any], str | None] | None = None
    aliases: tuple[str, ...] = ()
    former: tuple[str, ...] = ()
    deprecated: str | None = None
    no_effect: str | None = None
    applies: frozenset[str] = frozenset()
    example: str | None = None

    def __post_init__(self) -> None:
        for key in self.spellings:
            if _NAME.fullmatch(key) is None:
                msg = f"option key {key!r} is not a dotted name"
                raise ValueError(msg)
        if self.secret and self.type is not STRING:
            msg = f"option {self.key!r}: a secret must be a string"
            raise ValueError(msg)
        if self.required and self.default is not None:
            msg = f"option {self.key!r}: required and a default exclude each other"
            raise ValueError(msg)
        bounded = self.minimum is not None or self.maximum is not None
        if bounded and self.type in (
            STRING,
            FUNCTION,
            BOOLEAN,
            PATH,
            LIST,
            JSON_OBJECT,
            SCHEMA,
        ):
            msg = f"option {self.key!r}: bounds need a number"
            raise ValueError(msg)
        if self.default is not None:
            self.parse(self.default)

    @property
    def spellings(self) -> tuple[str, ...]:
        """Every key and alias of the option, the key first."""
        return (self.key, *self.aliases, *self.former)

    def parse(self, text: str) -> Any:
        """Parse a value.

        Raises:
            ValueError: The value is not valid. The message continues a sentence that
                begins with the value.
        """
        longest = self.type.longest
        if longest is not None and len(text) > longest:
            msg = f"is longer than {longest} characters"
            raise ValueError(msg)
        value = self.type.parse(text)
        if self.minimum is not None and value < self.minimum:
            msg = f"is below the minimum, {_plain(self.minimum)}"
            raise ValueError(msg)
        if self.maximum is not None and value > self.maximum:
            msg = f"is above the maximum, {_plain(self.maximum)}"
            raise ValueError(msg)
        complaint = None if self.validator is None else self.validator(value)
        if complaint:
            raise ValueError(complaint)
        return value


def _plain(number: float) -> str:
    return str(int(number)) if number == int(number) else str(number)
