"""Options that formats without a schema of their own share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from streamfactory.spi import SCHEMA, Option, SchemaUnknown, choice
from streamfactory.spi.arrowjson import parse_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa

UNITS: Final = {"seconds": "s", "millis": "ms", "micros": "us", "nanos": "ns"}
"""Arrow's name of each unit of time."""


def shared_options(writable: Callable[[str], str | None]) -> tuple[Option, ...]:
    """The schema, what becomes of fields that do not match it, and times as numbers.

    Args:
        writable: Answers what is wrong with a schema in this format, or None.
    """
    return (
        Option(
            "schema",
            "Columns of the rows, as Spark's DDL or Arrow's JSON.",
            SCHEMA,
            validator=writable,
            example="id bigint not null, name string, at timestamp",
        ),
        Option(
            "unknown.fields",
            "What a field that the schema lacks is, where `schema.contract` is not "
            "set: left out, or an error. An error is one under every contract.",
            choice("ignore", "error"),
            default="ignore",
        ),
        Option(
            "missing.fields",
            "What a field that a message lacks is: null, or an error.",
            choice("null", "error"),
            default="null",
        ),
        Option(
            "timestamp.unit",
            "What whole numbers count from 1970 on; without it a timestamp is text.",
            choice(*UNITS),
        ),
    )


def declared_schema(options: Mapping[str, Any], topic: str, name: str) -> pa.Schema:
    """The schema that the options declare.

    Raises:
        SchemaUnknown: config; they declare none.
    """
    if "schema" in options:
        return parse_schema(options["schema"])
    msg = f"the schema of {topic!r} is unknown: {name} does not contain it"
    raise SchemaUnknown(msg, remedy="declare it with the option schema")
