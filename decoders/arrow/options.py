"""Options of ``arrow``."""

from __future__ import annotations

from typing import Final

from streamfactory.spi import PATH, SIZE, Option, choice
from streamfactory.spi.arrowjson import parse_schema


def _is_schema(text: str) -> str | None:
    try:
        parse_schema(text)
    except ValueError as error:
        return str(error)
    return None


OPTIONS: Final = (
    Option(
        "schema",
        "Columns of the rows, as Spark DDL or Arrow JSON.",
        validator=_is_schema,
        example="id bigint not null, name string",
    ),
    Option(
        "schema.file",
        "Arrow IPC stream or file that contains the schema of the rows.",
        PATH,
    ),
    Option(
        "payload",
        "Form of written messages: a stream with schema, or a batch without.",
        choice("stream", "batch"),
        default="stream",
        applies=frozenset({"write"}),
    ),
    Option(
        "max.message.bytes",
        "Maximum size of a decompressed message.",
        SIZE,
        default="256M",
        minimum=1024,
        aliases=("arrow.allocator.limit",),
        applies=frozenset({"read"}),
    ),
    Option(
        "extractRawTimeValues",
        "Option of Pinot's decoder.",
        no_effect="times get the types of the schema: declare bigint to get numbers",
    ),
)
