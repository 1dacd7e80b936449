"""Options of ``json``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from streamfactory.decoders.columns.options import shared_options, text_problem
from streamfactory.decoders.registry import REGISTRY_OPTIONS
from streamfactory.spi import BOOLEAN, Option, choice
from streamfactory.spi.arrowjson import parse_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa


def _writable(text: str) -> str | None:
    schema = parse_schema(text)
    reason = text_problem(schema, nested=True) or _unreadable(list(schema))
    return None if reason is None else f"cannot be JSON: {reason}"


def _unreadable(fields: Sequence[pa.Field]) -> str | None:
    """Names the first field whose name msgspec does not accept; or None."""
    names = [field.name for field in fields]
    for field in fields:
        if names.count(field.name) > 1:
            return f"field {field.name!r} is declared twice"
        if re.search(r'["\\\x00-\x1f]', field.name):
            return f"field {field.name!r} has a quote, backslash or control character"
        kind = field.type
        reason = _unreadable([kind.field(at) for at in range(kind.num_fields)])
        if reason is not None:
            return reason
    return None


def _is_text(value: str) -> str | None:
    """Refuse Pinot's binary forms of JSON."""
    return None if value == "text" else f"is not supported ({value}): only text is"


OPTIONS: Final = (
    *shared_options(_writable),
    Option(
        "numbers.as.text",
        'Accept numbers in quotes, as "12".',
        BOOLEAN,
        default="false",
    ),
    Option(
        "json.format",
        "Pinot's JSON format; only text is supported.",
        choice(
            "text",
            "auto",
            "postgres_jsonb",
            "sqlite_jsonb",
            "smile",
            "cbor",
        ),
        default="text",
        validator=_is_text,
        aliases=("jsonFormat",),
    ),
    Option(
        "schema.registry.validate",
        "Validate messages by the JSON Schema that they name.",
        BOOLEAN,
        default="true",
    ),
    *REGISTRY_OPTIONS,
)
