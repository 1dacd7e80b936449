"""Checks that all logs share, with their messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streamfactory.spi import SchemaMismatch

if TYPE_CHECKING:
    import pyarrow as pa


MOST_PARTITIONS: Final = 100_000
"""Of one topic."""
NO_TOPIC_REMEDY: Final = (
    "publish to it, or create it with `streamfactory topics create`"
)


def check_schema(rows: pa.RecordBatch, schema: pa.Schema) -> None:
    """Refuse rows of another schema.

    Raises:
        SchemaMismatch: permanent.
    """
    if not rows.schema.equals(schema):
        msg = (
            f"the rows have schema {_types(rows.schema)}, the log has {_types(schema)}"
        )
        raise SchemaMismatch(msg)


def fenced(writer: str | None, epoch: int) -> str:
    """Return the message for a writer that was fenced by another instance."""
    return f"epoch {epoch}: another instance has claimed writer {writer!r}"


def _types(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
