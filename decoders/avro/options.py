"""Options of ``avro``."""

from __future__ import annotations

from typing import Final

from streamfactory.decoders.registry import REGISTRY_OPTIONS
from streamfactory.spi import BOOLEAN, INTEGER, PATH, Option


def _is_schema(text: str) -> str | None:
    # Imported here: only a schema needs Arrow.
    from streamfactory.decoders.avro.schemas import SchemaRefused, parse

    try:
        parse(text)
    except SchemaRefused as error:
        return f"is not a schema for columns: {error}"
    return None


OPTIONS: Final = (
    Option(
        "schema",
        "Avro schema of the rows, as JSON.",
        validator=_is_schema,
        example='{"type":"record","name":"click","fields":[{"name":"id","type":"long"}]}',
    ),
    Option("schema.file", "File with the Avro schema of the rows.", PATH),
    Option(
        "leading.bytes.to.strip",
        "Number of bytes to skip at the start of each message.",
        INTEGER,
        default="0",
        minimum=0,
        maximum=1024,
        applies=frozenset({"read"}),
    ),
    Option(
        "times.as.numbers",
        "Return dates and times as numbers, as they are encoded.",
        BOOLEAN,
        default="false",
        aliases=("extractRawTimeValues",),
    ),
    *REGISTRY_OPTIONS,
)
