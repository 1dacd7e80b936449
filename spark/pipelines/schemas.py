"""JSON Schema of pipeline files, for editors and validators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamfactory.spark.pipelines.options import (
    DEAD_LETTER_OPTIONS,
    EXPECTATION_OPTIONS,
    LOOKUP_OPTIONS,
    LOOKUP_STREAM_OPTIONS,
    LOOKUP_TABLE_OPTIONS,
    PIPELINE_OPTIONS,
    SINK_OPTIONS,
    SOURCE_OPTIONS,
    STEP_OPTIONS,
    TABLE_OPTIONS,
)
from streamfactory.spark.pipelines.parsing import TABLE_OPTION
from streamfactory.wiring.config.json_schemas import (
    DRAFT_7,
    options_schema,
    stream_definitions,
    table_schema,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streamfactory.spi import Option
    from streamfactory.wiring.config.json_schemas import Types

    Schema = dict[str, Any]


def pipeline_file_schema(types: Types) -> Schema:
    """Return the JSON Schema, draft 7, of the files of pipelines."""
    definitions = stream_definitions(types)
    del definitions["stream"]["properties"]["stream"]  # here that is a name
    lookup = _overriding(
        (*LOOKUP_OPTIONS, *LOOKUP_TABLE_OPTIONS, *LOOKUP_STREAM_OPTIONS),
        f"^{TABLE_OPTION[:-1]}",
    )
    lookup["allOf"][1]["required"] = ["id"]
    lookup["anyOf"] = [{"required": ["format"]}, {"required": ["stream", "key"]}]
    schema = _plain(PIPELINE_OPTIONS)
    schema["properties"] |= {
        "source": _overriding(SOURCE_OPTIONS),
        "sources": _many({"$ref": "#/properties/source"}),
        "lookups": _many(lookup),
        "steps": _many(_plain(STEP_OPTIONS)),
        "expectations": _many(_overriding(EXPECTATION_OPTIONS)),
        "sinks": _many(_overriding(SINK_OPTIONS)),
        "tables": _many(_plain(TABLE_OPTIONS, [TABLE_OPTION])),
        "dead-letters": _overriding(DEAD_LETTER_OPTIONS),
        "spark": {
            "description": "Settings of the session, without the first spark.",
            "type": "object",
        },
    }
    schema["anyOf"] = [{"required": ["source"]}, {"required": ["sources"]}]
    return {
        "$schema": DRAFT_7,
        "title": "A pipeline of streamfactory",
        **schema,
        "$defs": definitions,
    }


def _many(item: Schema) -> Schema:
    return {"type": "array", "items": item}


def _plain(options: Iterable[Option], open_names: Iterable[str] = ()) -> Schema:
    options = [*options]
    schema = table_schema(options_schema(options), open_names)
    return schema | {"required": [one.key for one in options if one.required]}


def _overriding(options: Iterable[Option], *patterns: str) -> Schema:
    """A table whose other keys replace properties of a stream.

    Args:
        options: Its own options.
        patterns: Of further keys.
    """
    own = _plain(options)
    del own["additionalProperties"]
    names = [{"enum": [*own["properties"]]}, {"$ref": "#/$defs/names"}]
    names += [{"pattern": pattern} for pattern in patterns]
    # Tables whose names both have, such as `key`, have the keys of both.
    return {
        "allOf": [{"$ref": "#/$defs/stream"}, own],
        "propertyNames": {"anyOf": names},
    }
