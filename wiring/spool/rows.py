"""The stored rows of a spool: rows of the transport, receive times, losses.

Two columns are appended to those of the transport: ``_received``, and ``_lost`` with
the losses before that row, as JSON. Losses are committed with the next row, so that
they are equally durable and every reader gets them in order. Topic, partition and
offset of envelopes are not stored: they follow from the position in the spool.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from streamfactory.arrowlog.messages import placed_envelopes
from streamfactory.spi import ConfigError, Loss, SchemaMismatch, envelope_schema
from streamfactory.spi.computing import pc
from streamfactory.spi.envelope import TIMESTAMP_APPENDED, TIMESTAMP_UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfactory.spi import Partition

RECEIVED: Final = pa.field("_received", pa.timestamp("us", tz="UTC"), nullable=False)
LOST: Final = pa.field("_lost", pa.string())
_PLACE: Final = ("topic", "partition", "offset")
"""Columns of an envelope that follow from its position in the spool."""


def stored_schema(schema: pa.Schema) -> pa.Schema:
    """Return the stored schema for rows of a schema.

    Raises:
        SchemaMismatch: permanent; a column has a reserved name.
    """
    taken = {RECEIVED.name, LOST.name} & set(schema.names)
    if taken:
        msg = f"the column name {min(taken)!r} is reserved by the spool"
        raise SchemaMismatch(msg, remedy="rename the column at the sender")
    fields = list(schema)
    if schema.equals(envelope_schema()):
        fields = [field for field in schema if field.name not in _PLACE]
    return pa.schema([*fields, RECEIVED, LOST])


def delivered_schema(stored: pa.Schema, place: str) -> pa.Schema:
    """Return the schema for readers of a spool.

    Args:
        stored: The schema of its log.
        place: Its location, for the error.

    Raises:
        ConfigError: config; the log is not a spool.
    """
    if stored.names[-2:] != [RECEIVED.name, LOST.name]:
        msg = f"the topic in {place} is not a spool: its rows have no receive time"
        raise ConfigError(msg, remedy="set spool.path to another folder")
    schema = pa.schema(list(stored)[:-2])
    if stored.equals(stored_schema(envelope_schema())):
        return envelope_schema()
    return schema


def to_stored(
    rows: pa.RecordBatch, stored: pa.Schema, received_us: int, losses: Sequence[Loss]
) -> pa.RecordBatch:
    """Rows as the spool stores them.

    Args:
        rows: Rows of the transport; at least one.
        stored: The `stored_schema`.
        received_us: Receive time, in microseconds since the epoch.
        losses: Losses before the first row.
    """
    count = rows.num_rows
    columns = [rows.column(name) for name in stored.names[:-2]]
    # Built from a buffer: `pa.scalar` of a time imports pandas, which takes a second.
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
    """Return rows for readers, and the losses recorded in them.

    Args:
        rows: Rows of the spool.
        partition: Their partition.
        start: Offset of the first row.
        delivered: The `delivered_schema` of the spool.
        fields: Columns to return; None means all.
    """
    losses = recorded_losses(rows.column(LOST.name), partition)
    if delivered.equals(envelope_schema()):
        return _envelopes(rows, partition, start), losses
    names = delivered.names if fields is None else list(fields)
    schema = pa.schema([delivered.field(name) for name in names])
    columns = [rows.column(name) for name in names]
    return pa.RecordBatch.from_arrays(columns, schema=schema), losses


def recorded_losses(column: pa.Array, partition: Partition) -> list[Loss]:
    """Return the losses in the column ``_lost``, in order."""
    if column.null_count == len(column):
        return []
    found: list[Loss] = []
    for text in column.drop_null().to_pylist():
        entries: list[tuple[int, int | None, str]] = json.loads(text)
        for start, end, cause in entries:
            found.append(Loss(partition, start, end, f"before the spool: {cause}"))
    return found


def _envelopes(
    rows: pa.RecordBatch, partition: Partition, start: int
) -> pa.RecordBatch:
    """Return envelopes; a message without timestamp gets its receive time."""
    timestamp, kind = rows.column("timestamp"), rows.column("timestampType")
    if timestamp.null_count:
        unknown = timestamp.is_null()
        timestamp = pc.if_else(unknown, rows.column(RECEIVED.name), timestamp)
        appended = pa.scalar(TIMESTAMP_APPENDED, pa.int32())
        of_none = pc.equal(kind, pa.scalar(TIMESTAMP_UNKNOWN, pa.int32()))
        kind = pc.if_else(pc.and_(unknown, of_none), appended, kind)
    return placed_envelopes(rows, partition, start, timestamp, kind)
