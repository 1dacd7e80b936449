"""Declaring options: each once, and everything else follows from the declaration.

Parsing, help, the reference page, JSON Schema and examples all come from `Option`.
Values are strings wherever they come from; an `OptionType` reads them. A bad value is
an error, never a default.
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

_UNITS: Final = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_PERIOD: Final = re.compile(
    r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+)s)?(?:(\d+)ms)?"
)
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]*")


@dataclass(frozen=True, slots=True)
class OptionType:
    """How the text of a value is read."""

    name: str
    """Shown to users: ``integer``, ``period``, ..."""
    parse: Callable[[str], Any]
    """Raises ValueError with what is wanted, in words."""
    schema: Mapping[str, Any] = field(default_factory=dict)
    """JSON Schema of the text."""


def _integer(text: str) -> int:
    if re.fullmatch(r"[+-]?\d+", text) is None:
        msg = "is not a whole number"
        raise ValueError(msg)
    value = int(text)
    if not -(2**63) <= value < 2**63:
        msg = "does not fit 64 bits"
        raise ValueError(msg)
    return value


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        msg = "is not a number"
        raise ValueError(msg) from None
    if not math.isfinite(value):
        msg = "is not a finite number"
        raise ValueError(msg)
    return value


def _boolean(text: str) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        msg = "is neither true nor false"
        raise ValueError(msg)
    return lowered == "true"


def _period(text: str) -> int:
    compact = text.replace(" ", "")
    if compact.isdecimal():
        return int(compact)
    match = _PERIOD.fullmatch(compact)
    if not compact or match is None:
        msg = "is not a period: write 250ms, 30s, 5m, 4h30m, 1d, or plain milliseconds"
        raise ValueError(msg)
    parts = zip(match.groups(), _UNITS.values(), strict=True)
    return sum(int(number) * unit for number, unit in parts if number)


def _size(text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        msg = "is not a size: write 8388608, 512K, 150M or 1.1G"
        raise ValueError(msg)
    power = "KMGT".find(match[2].upper()) + 1 if match[2] else 0
    return int(float(match[1]) * 1024**power)


def _path(text: str) -> str:
    if not text.strip():
        msg = "is not a path"
        raise ValueError(msg)
    return str(Path(text).expanduser().absolute())


def _list(text: str) -> tuple[str, ...]:
    parts = tuple(part.strip() for part in text.split(","))
    if not all(parts):
        msg = "has an empty entry: write a,b,c"
        raise ValueError(msg)
    return parts


def _json_object(text: str) -> Mapping[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        msg = f"is not JSON: {error}"
        raise ValueError(msg) from None
    if not isinstance(value, dict):
        msg = "is not a JSON object"
        raise ValueError(msg)  # noqa: TRY004 - a bad value, not a bad type
    return value


STRING: Final = OptionType("string", str, {"type": "string"})
INTEGER: Final = OptionType("integer", _integer, {"type": ["string", "integer"]})
NUMBER: Final = OptionType("number", _number, {"type": ["string", "number"]})
BOOLEAN: Final = OptionType("boolean", _boolean, {"type": ["string", "boolean"]})
PERIOD: Final = OptionType("period", _period, {"type": ["string", "integer"]})
"""``4h30m`` or plain milliseconds; the value is milliseconds."""
SIZE: Final = OptionType("size", _size, {"type": ["string", "integer"]})
"""``150M``, ``1.1G``, or plain bytes; binary units; the value is bytes."""
PATH: Final = OptionType("path", _path, {"type": "string"})
"""Made absolute where it is read: processes differ in their working folder."""
LIST: Final = OptionType("list", _list, {"type": "string"})
"""``a,b,c``; the value is a tuple of strings."""
JSON_OBJECT: Final = OptionType("JSON object", _json_object, {"type": "string"})


def choice(*words: str) -> OptionType:
    """One of some words; case does not matter, the value is the word as given here."""
    by_lower = {word.lower(): word for word in words}

    def parse(text: str) -> str:
        try:
            return by_lower[text.strip().lower()]
        except KeyError:
            msg = f"is not one of {', '.join(words)}"
            raise ValueError(msg) from None

    return OptionType(" or ".join(words), parse, {"type": "string", "enum": [*words]})


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a backend, a decoder, or the framework."""

    key: str
    """Of a backend: what follows ``stream.<type>.``. Lower case, dotted, with the unit
    in the name (``linger.millis``, ``buffer.bytes``)."""
    doc: str
    """One line, ending in a full stop."""
    type: OptionType = STRING
    default: str | None = None
    """As text; None with ``required`` false means: not set."""
    required: bool = False
    secret: bool = False
    """Masked everywhere; only a string; refused as a literal on Spark."""
    minimum: float | None = None
    maximum: float | None = None
    validator: Callable[[Any], str | None] | None = None
    """Gets the parsed value; answers what is wrong with it, or None."""
    aliases: tuple[str, ...] = ()
    """Other spellings with the same meaning; two that disagree are an error."""
    deprecated: str | None = None
    """What to write instead: using it is a warning."""
    no_effect: str | None = None
    """Why this known key does nothing here: using it is a warning."""
    applies: frozenset[str] = frozenset()
    """``read``, ``write``, ``spark``, ...; empty means always."""
    example: str | None = None

    def __post_init__(self) -> None:
        if _NAME.fullmatch(self.key) is None:
            msg = f"option key {self.key!r} is not a dotted name"
            raise ValueError(msg)
        if self.secret and self.type is not STRING:
            msg = f"option {self.key!r}: a secret is a string"
            raise ValueError(msg)
        if self.required and self.default is not None:
            msg = f"option {self.key!r}: required and a default exclude each other"
            raise ValueError(msg)
        if self.default is not None:
            self.parse(self.default)

    def parse(self, text: str) -> Any:
        """Read a value.

        Raises:
            ValueError: What is wrong, in words that follow the value in a sentence.
        """
        value = self.type.parse(text)
        if self.minimum is not None and value < self.minimum:
            msg = f"is below the least allowed, {self.minimum:g}"
            raise ValueError(msg)
        if self.maximum is not None and value > self.maximum:
            msg = f"is above the most allowed, {self.maximum:g}"
            raise ValueError(msg)
        complaint = None if self.validator is None else self.validator(value)
        if complaint:
            raise ValueError(complaint)
        return value
