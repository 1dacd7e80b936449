"""Checks that all logs share, with their messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streamfactory.spi import (
    MisuseError,
    OffsetOutOfRange,
    Partition,
    SchemaMismatch,
    TopicNotFound,
)
from streamfactory.spi.ddl import columns_text
from streamfactory.spi.partitions import MAX_PARTITION_ID

if TYPE_CHECKING:
    import pyarrow as pa

    from streamfactory.arrowlog.values import PartitionBounds


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
        found = columns_text(rows.schema)
        msg = f"the rows have schema {found}, the log has {columns_text(schema)}"
        raise SchemaMismatch(msg)


def no_such_partition(topic: str, partition: int, count: int) -> TopicNotFound:
    """Return the error for a partition that does not exist."""
    known = f"s are 0 to {count - 1}" if count > 1 else " is 0"
    what = f"topic {topic!r} has no partition {partition}: its partition{known}"
    possible = 0 <= partition <= MAX_PARTITION_ID
    place = Partition(topic, partition) if possible else None
    return TopicNotFound(what, partition=place)


def check_range(topic: str, partition: PartitionBounds, start: int) -> None:
    """Refuse an offset that a partition does not have.

    Raises:
        OffsetOutOfRange: data_loss.
    """
    earliest, latest = partition.earliest, partition.latest
    if not earliest <= start <= latest:
        msg = f"offset {start} is out of range: available are {earliest} to {latest}"
        raise OffsetOutOfRange(
            msg,
            earliest=earliest,
            latest=latest,
            partition=Partition(topic, partition.id),
            offset=start,
        )


def check_growth(topic: str, partitions: int, wanted: int) -> None:
    """Refuse a smaller number of partitions.

    Raises:
        MisuseError: misuse.
    """
    if wanted < partitions:
        msg = f"topic {topic!r} has {partitions} partitions, and cannot have fewer"
        raise MisuseError(msg)
