"""Dead letters as Spark SQL, for rows with the columns ``_error`` and ``_raw``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streamfactory.wiring.decoding.deadletters import (
    DEAD_LETTER_SCHEMA,
    check_columns,
    source_columns,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from streamfactory.wiring.decoding.deadletters import Origin

_NOW: Final = (
    "date_format(to_utc_timestamp(current_timestamp(), current_timezone()), "
    "\"yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'\")"
)
_TYPES: Final = {
    "key": "binary",
    "headers": "array<struct<key:string,value:binary>>",
    "timestamp": "timestamp",
    "ordinal": "int",
    "incarnation": "string",
}


def dead_letter_expressions(schema: pa.Schema, origin: Origin) -> list[str]:
    """Return the columns of dead letters as Spark SQL, for ``frame.selectExpr``.

    They apply to rows whose ``_error`` is not null. Incarnation and ordinal are null,
    because Spark's rows do not have them.

    Args:
        schema: Schema of the stream as it is read, with metadata columns.
        origin: Origin of all rows.

    Raises:
        ConfigError: config; a column that dead letters require is missing.
    """
    check_columns(schema, origin)
    written = {
        name: column for name, column in source_columns(schema).items() if column
    }
    written |= {
        "value": "_raw",
        "error_code": "_error.code",
        "error_message": "_error.message",
        "decoder": _literal(origin.decoder),
        "decoder_version": _literal(origin.version),
        "failed_at": _NOW,
        "stream": _literal(origin.stream),
    }
    return [
        f"{written.get(name) or f'CAST(NULL AS {_TYPES[name]})'} AS `{name}`"
        for name in DEAD_LETTER_SCHEMA.names
    ]


def _literal(text: str | None) -> str:
    if text is None:
        return "CAST(NULL AS string)"
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
