"""The options of ``json``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from streamfactory.decoders.columns.casting import unsupported
from streamfactory.decoders.columns.options import shared_options
from streamfactory.spi import BOOLEAN, Option, choice
from streamfactory.spi.arrowjson import parse_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa


def _writable(text: str) -> str | None:
    schema = parse_schema(text)
    complaint = unsupported(schema, nested=True) or _unreadable(list(schema))
    return None if complaint is None else f"cannot be JSON: {complaint}"


def _unreadable(fields: Sequence[pa.Field]) -> str | None:
    """The first field whose name msgspec does not take, in words."""
    names = [field.name for field in fields]
    for field in fields:
        if names.count(field.name) > 1:
            return f"field {field.name!r} is there twice"
        if re.search(r'["\\\x00-\x1f]', field.name):
            return f"field {field.name!r} has a quote, backslash or control character"
        kind = field.type
        complaint = _unreadable([kind.field(at) for at in range(kind.num_fields)])
        if complaint is not None:
            return complaint
    return None


def _is_text(value: str) -> str | None:
    """Complain of Pinot's binary forms of JSON."""
    return None if value == "text" else f"is not read here ({value}): only text is"


OPTIONS: Final = (
    *shared_options(_writable),
    Option(
        "numbers.as.text",
        'Take numbers in quotes, as "12", for numbers.',
        BOOLEAN,
        default="false",
    ),
    Option(
        "json.format",
        "Pinot's name of the form; its binary forms are refused.",
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
)
