"""What every log checks, in the same words."""

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
        msg = f"rows are {_types(rows.schema)}, the log {_types(schema)}"
        raise SchemaMismatch(msg)


def fenced(writer: str | None, epoch: int) -> str:
    """What a writer is told when another instance of it has begun."""
    return f"epoch {epoch}: another instance of the writer {writer!r} has taken over"


def _types(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
