"""Checks that all logs share, with their messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streamfactory.spi import Partition, SchemaMismatch, TopicNotFound, WriterFenced
from streamfactory.spi.partitions import MAX_PARTITION_ID

if TYPE_CHECKING:
    import pyarrow as pa

    from streamfactory.arrowlog.values import Epoch


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


def check_owner(epoch: Epoch, owner: str | None) -> None:
    """Refuse an epoch of an instance that another one has superseded (rule W3).

    Before its number is looked at: the number may be taken by the other instance, with
    other rows.

    Args:
        epoch: The epoch.
        owner: The instance that has claimed the writer; None if there is none.

    Raises:
        WriterFenced: permanent.
    """
    if owner is not None and owner != epoch.instance:
        msg = f"epoch {epoch.number}: another instance has claimed writer "
        raise WriterFenced(msg + repr(epoch.writer))


def no_such_partition(topic: str, partition: int, count: int) -> TopicNotFound:
    """Return the error for a partition that does not exist."""
    known = f"s are 0 to {count - 1}" if count > 1 else " is 0"
    what = f"topic {topic!r} has no partition {partition}: its partition{known}"
    possible = 0 <= partition <= MAX_PARTITION_ID
    place = Partition(topic, partition) if possible else None
    return TopicNotFound(what, partition=place)


def _types(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
