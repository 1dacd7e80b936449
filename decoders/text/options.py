"""Options of ``text``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from streamfactory.decoders.columns.options import shared_options, text_problem
from streamfactory.spi import BOOLEAN, Option, OptionType
from streamfactory.spi.arrowjson import parse_schema
from streamfactory.spi.causes import first_line
from streamfactory.spi.ddl import type_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_PLACE: Final = re.compile(r"\{([^{}]*)\}")


def groups(pattern: str) -> Sequence[str]:
    """The named groups of a pattern, in order.

    Raises:
        ValueError: The pattern is invalid, or has no named groups.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        # Matching an empty column yields the type, whose fields are the groups.
        kind = pc.extract_regex(pa.array([], pa.string()), pattern).type
    except pa.ArrowInvalid as error:
        reason = first_line(error)
        msg = f"is not an RE2 regular expression with named groups: {reason}"
        raise ValueError(msg) from None
    names = [field.name for field in kind]
    if not names or len(set(names)) < len(names):
        msg = "has no named group (?P<name>...), or two with the same name"
        raise ValueError(msg)
    return names


def whole_pattern(options: Mapping[str, Any]) -> str | None:
    """The pattern; anchored to match whole messages unless `search` is set."""
    pattern = options.get("pattern")
    if pattern is None or options["search"]:
        return pattern
    return f"\\A(?:{pattern})\\z"


def places(template: str) -> Sequence[str]:
    """Literal texts and column names in turn, beginning and ending with a text."""
    return _PLACE.split(template)


def _pattern(text: str) -> str:
    groups(text)
    return text


def _template(text: str) -> str:
    if len(places(text)) < 3:
        msg = "contains no column: write {name}"
        raise ValueError(msg)
    return text


def _flat(text: str) -> str | None:
    schema = parse_schema(text)
    for field in schema:
        if "list" in str(field.type):
            return f"cannot be text: column {field.name!r} is {type_text(field.type)}"
    reason = text_problem(schema, nested=False)
    return None if reason is None else f"cannot be text: {reason}"


OPTIONS: Final = (
    *shared_options(_flat),
    Option(
        "pattern",
        "Regular expression that whole messages match; named groups are the columns.",
        OptionType("regular expression", _pattern, {"type": "string"}),
        example="(?P<host>[^ ]+) (?P<status>[0-9]+)",
    ),
    Option(
        "search",
        "Whether the pattern may match only a part of the message.",
        BOOLEAN,
        default="false",
    ),
    Option(
        "null.value",
        "Text of a group that means null.",
        default="",
    ),
    Option(
        "template",
        "Template of encoded rows, with {name} for the value of a column.",
        OptionType("template", _template, {"type": "string"}),
        example="{host} {status}",
    ),
)
