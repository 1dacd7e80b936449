"""The options of ``text``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from streamfactory.decoders.columns.casting import unsupported
from streamfactory.decoders.columns.options import shared_options
from streamfactory.spi import BOOLEAN, Option, OptionType
from streamfactory.spi.arrowjson import parse_schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_PLACE: Final = re.compile(r"\{([^{}]*)\}")


def groups(pattern: str) -> Sequence[str]:
    """The named groups of a pattern, in order.

    Raises:
        ValueError: It is none, or has none.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        # Of all its matches of nothing, only the type is wanted.
        kind = pc.extract_regex(pa.array([], pa.string()), pattern).type
    except pa.ArrowInvalid as error:
        reason = str(error).splitlines()[0]
        msg = f"is not a regular expression of RE2 with named groups: {reason}"
        raise ValueError(msg) from None
    names = [field.name for field in kind]
    if not names or len(set(names)) < len(names):
        msg = "has no named group (?P<name>...), or two of one name"
        raise ValueError(msg)
    return names


def whole_pattern(options: Mapping[str, Any]) -> str | None:
    """The pattern, made to match whole messages where it has to."""
    pattern = options.get("pattern")
    if pattern is None or options["search"]:
        return pattern
    return f"\\A(?:{pattern})\\z"


def places(template: str) -> Sequence[str]:
    """Texts and names of columns in turn, beginning and ending with a text."""
    return _PLACE.split(template)


def _pattern(text: str) -> str:
    groups(text)
    return text


def _template(text: str) -> str:
    if len(places(text)) < 3:
        msg = "names no column: write {name}"
        raise ValueError(msg)
    return text


def _flat(text: str) -> str | None:
    schema = parse_schema(text)
    for field in schema:
        if "list" in str(field.type):
            return f"cannot be text: column {field.name!r} is {field.type}"
    complaint = unsupported(schema, nested=False)
    return None if complaint is None else f"cannot be text: {complaint}"


OPTIONS: Final = (
    *shared_options(_flat),
    Option(
        "pattern",
        "What a message has to match as a whole; named groups are columns.",
        OptionType("regular expression", _pattern, {"type": "string"}),
        example="(?P<host>[^ ]+) (?P<status>[0-9]+)",
    ),
    Option(
        "search",
        "Whether the pattern may match a part of the message.",
        BOOLEAN,
        default="false",
    ),
    Option(
        "null.value",
        "What a group has matched where the column is null.",
        default="",
    ),
    Option(
        "template",
        "How a row is written, with {name} where a column stands.",
        OptionType("template", _template, {"type": "string"}),
        example="{host} {status}",
    ),
)
