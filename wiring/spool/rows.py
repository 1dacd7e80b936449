"""What a spool stores: the rows of the transport, when they came, what was lost.

Two columns stand behind those of the transport: ``_received``, and ``_lost`` with what
is known to be missing before that row, as JSON. The losses are committed with the row
behind them, so that they are as safe as it, and every reader gets them at their place.
Of an envelope the topic, the partition and the offset are left out: they are given by
the place in the spool.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamfactory.spi import ConfigError, Loss, SchemaMismatch, envelope_schema
from streamfactory.spi.envelope import TIMESTAMP_APPENDED, TIMESTAMP_UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfactory.spi import Partition

RECEIVED: Final = pa.field("_received", pa.timestamp("us", tz="UTC"), nullable=False)
LOST: Final = pa.field("_lost", pa.string())
_PLACE: Final = ("topic", "partition", "offset")
"""Columns of an envelope that follow from its place in the spool."""


def stored_schema(schema: pa.Schema) -> pa.Schema:
    """What a spool stores of rows of a schema.

    Raises:
        SchemaMismatch: permanent; a column has a name that the spool needs.
    """
    taken = {RECEIVED.name, LOST.name} & set(schema.names)
    if taken:
        msg = f"a spool needs the column name {min(taken)!r} for itself"
        raise SchemaMismatch(msg, remedy="rename the column at the sender")
    fields = list(schema)
    if schema.equals(envelope_schema()):
        fields = [field for field in schema if field.name not in _PLACE]
    return pa.schema([*fields, RECEIVED, LOST])


def delivered_schema(stored: pa.Schema, place: str) -> pa.Schema:
    """What readers get of a spool.

    Args:
        stored: The schema of its log.
        place: Where it is, for the error.

    Raises:
        ConfigError: config; the log is no spool.
    """
    if stored.names[-2:] != [RECEIVED.name, LOST.name]:
        msg = f"the topic in {place} is not a spool: its rows have no receive time"
        raise ConfigError(msg, remedy="give the spool a folder of its own: spool.path")
    schema = pa.schema(list(stored)[:-2])
    if stored.equals(stored_schema(envelope_schema())):
        return envelope_schema()
    return schema


def to_stored(
    rows: pa.RecordBatch, stored: pa.Schema, received_us: int, losses: Sequence[Loss]
) -> pa.RecordBatch:
    """Rows as the spool stores them.

    Args:
        rows: Of the transport; at least one.
        stored: `stored_schema` of theirs.
        received_us: When they came, in microseconds since the epoch.
        losses: What is known to be missing before the first of them.
    """
    count = rows.num_rows
    columns = [rows.column(name) for name in stored.names[:-2]]
    # Of a buffer: `pa.scalar` of a time imports pandas, which takes a second.
    times = pa.py_buffer(np.full(count, received_us, np.int64))
    received = pa.Array.from_buffers(RECEIVED.type, count, [None, times])
    lost = pa.nulls(count, LOST.type)
    if losses:
        text = json.dumps([[loss.start, loss.end, loss.cause] for loss in losses])
        lost = pa.concat_arrays([pa.array([text], LOST.type), lost.slice(1)])
    return pa.RecordBatch.from_arrays([*columns, received, lost], schema=stored)


def from_stored(
    rows: pa.RecordBatch,
    partition: Partition,
    start: int,
    delivered: pa.Schema,
    fields: Sequence[str] | None,
) -> tuple[pa.RecordBatch, list[Loss]]:
    """Rows as readers get them, and the losses recorded among them.

    Args:
        rows: Of the spool.
        partition: Theirs.
        start: Offset of the first one.
        delivered: `delivered_schema` of the spool.
        fields: Columns wanted; None means all.
    """
    losses = recorded_losses(rows.column(LOST.name), partition)
    if delivered.equals(envelope_schema()):
        return _envelopes(rows, partition, start), losses
    names = delivered.names if fields is None else list(fields)
    schema = pa.schema([delivered.field(name) for name in names])
    columns = [rows.column(name) for name in names]
    return pa.RecordBatch.from_arrays(columns, schema=schema), losses


def recorded_losses(column: pa.Array, partition: Partition) -> list[Loss]:
    """The losses that rows of the column ``_lost`` record, in their order."""
    if column.null_count == len(column):
        return []
    found: list[Loss] = []
    for text in column.drop_null().to_pylist():
        entries: list[tuple[int, int | None, str]] = json.loads(text)
        for start, end, cause in entries:
            found.append(Loss(partition, start, end, f"before the spool: {cause}"))
    return found


def _envelopes(rows: pa.RecordBatch, partition: Partition, start: int) -> Any:
    """Envelopes; a message without a time has the time at which it was received."""
    count = rows.num_rows
    timestamp, kind = rows.column("timestamp"), rows.column("timestampType")
    if timestamp.null_count:
        unknown = timestamp.is_null()
        timestamp = pc.if_else(unknown, rows.column(RECEIVED.name), timestamp)
        appended = pa.scalar(TIMESTAMP_APPENDED, pa.int32())
        of_none = pc.equal(kind, pa.scalar(TIMESTAMP_UNKNOWN, pa.int32()))
        kind = pc.if_else(pc.and_(unknown, of_none), appended, kind)
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
