"""Topics of undecoded messages: what a log stores of them, and what readers get."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa

from streamfactory.spi import Partition, envelope_schema, headers_type
from streamfactory.spi.computing import pc
from streamfactory.spi.envelope import TIMESTAMP_CREATED, TIMESTAMP_UNKNOWN

if TYPE_CHECKING:
    from streamfactory.spi import Outgoing


@cache
def message_schema() -> pa.Schema:
    """What a topic of undecoded messages stores; the rest is known by its place."""
    return pa.schema(
        [
            pa.field("key", pa.binary()),
            pa.field("value", pa.binary()),
            pa.field("timestamp", pa.timestamp("us", tz="UTC")),
            pa.field("headers", headers_type()),
        ]
    )


def stored_messages(outgoing: Outgoing) -> pa.RecordBatch:
    """Rows of `message_schema`, of what a writer was given."""
    schema, count = message_schema(), outgoing.rows.num_rows
    given = {
        "key": outgoing.key,
        "value": outgoing.rows.column("value"),
        "timestamp": outgoing.timestamp,
        "headers": outgoing.headers,
    }
    columns = [
        pa.nulls(count, field.type)
        if given[field.name] is None
        else given[field.name].cast(field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def envelopes(rows: pa.RecordBatch, partition: Partition, start: int) -> pa.RecordBatch:
    """Envelopes, of stored messages from an offset on."""
    timestamp = rows.column("timestamp")
    created, unknown = (
        pa.scalar(kind, pa.int32()) for kind in (TIMESTAMP_CREATED, TIMESTAMP_UNKNOWN)
    )
    kind = pc.if_else(timestamp.is_valid(), created, unknown)
    return placed_envelopes(rows, partition, start, timestamp, kind)


def placed_envelopes(
    rows: pa.RecordBatch,
    partition: Partition,
    start: int,
    timestamp: pa.Array,
    kind: pa.Array,
) -> pa.RecordBatch:
    """Envelopes, of messages that are stored without their place.

    Args:
        rows: With keys, values and headers.
        partition: Their partition.
        start: Offset of the first message.
        timestamp: Their timestamps.
        kind: What each timestamp is.
    """
    count = rows.num_rows
    columns = {
        "key": rows.column("key"),
        "value": rows.column("value"),
        "topic": pa.repeat(pa.scalar(partition.topic, pa.string()), count),
        "partition": pa.repeat(pa.scalar(partition.id, pa.int32()), count),
        "offset": pa.arange(start, start + count),
        "timestamp": timestamp,
        "timestampType": kind,
        "headers": rows.column("headers"),
    }
    return pa.RecordBatch.from_pydict(columns, schema=envelope_schema())
