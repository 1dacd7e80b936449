"""Options shared by formats that carry no schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from streamfactory.spi import SCHEMA, Option, SchemaUnknown, choice
from streamfactory.spi.arrowjson import parse_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa

UNITS: Final = {"seconds": "s", "millis": "ms", "micros": "us", "nanos": "ns"}
"""Arrow's name for each time unit."""


def text_problem(schema: pa.Schema, *, nested: bool) -> str | None:
    """Return why a format of texts cannot represent a schema; None if it can.

    Args:
        schema: The declared schema.
        nested: Whether the format has structs and maps.
    """
    # Imported here: only a schema needs Arrow.
    from streamfactory.decoders.columns.casting import unsupported

    return unsupported(schema, nested=nested)


def shared_options(
    writable: Callable[[str], str | None],
    schema: str = "Columns of the rows, as Spark DDL or Arrow JSON.",
) -> tuple[Option, ...]:
    """Options for the schema, unknown and missing fields, and numeric timestamps.

    Args:
        writable: Returns the reason why the format cannot represent a schema, or None.
        schema: Documents the option ``schema``.
    """
    return (
        Option(
            "schema",
            schema,
            SCHEMA,
            validator=writable,
            example="id bigint not null, name string, at timestamp",
        ),
        Option(
            "unknown.fields",
            "Treatment of fields that are not in the schema, if `schema.contract` is "
            "not set: drop them, or report an error. `error` applies under every "
            "contract.",
            choice("ignore", "error"),
            default="ignore",
        ),
        Option(
            "missing.fields",
            "Treatment of fields that a message lacks: null, or an error.",
            choice("null", "error"),
            default="null",
        ),
        Option(
            "timestamp.unit",
            "Unit of timestamps given as numbers since 1970; if unset, timestamps are "
            "text.",
            choice(*UNITS),
        ),
    )


def declared_schema(options: Mapping[str, Any], topic: str, name: str) -> pa.Schema:
    """The schema that the options declare.

    Raises:
        SchemaUnknown: config; no schema is declared.
    """
    if "schema" in options:
        return parse_schema(options["schema"])
    msg = f"the schema of {topic!r} is unknown: {name} does not contain it"
    raise SchemaUnknown(msg, remedy="declare it with the option schema")
