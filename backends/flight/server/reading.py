"""Reading from the server: ranges by ``DoGet``, subscriptions by ``DoExchange``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.flight as fl

from streamfactory.arrowlog.checks import no_such_partition
from streamfactory.backends.flight.protocol.codec import decode, encode
from streamfactory.backends.flight.protocol.messages import Delivery, Fetch
from streamfactory.backends.flight.server.dictionaries import DictionaryRemover
from streamfactory.backends.flight.server.logs import open_topic
from streamfactory.spi import FormatRefused, OffsetOutOfRange, Partition

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator, Sequence

    from streamfactory.arrowlog import Log, LogSlice, LogStore, PartitionBounds
    from streamfactory.backends.flight.protocol.messages import Subscribe, Ticket
    from streamfactory.backends.flight.server.metrics import Meters

Answer = tuple[pa.RecordBatch, bytes]
"""Rows, and their `Delivery`."""

_BATCH_ROWS: Final = 65_536
_BATCH_BYTES: Final = 8 << 20
_SMALL_ROWS: Final = 8192
"""Batches with fewer rows are concatenated."""
_LONGEST_WAIT: Final = 0.25
"""Seconds within which a handler detects a disconnected client."""


def read_range(
    store: LogStore,
    ticket: Ticket,
    context: fl.ServerCallContext,
    stopping: threading.Event,
    meters: Meters,
) -> tuple[pa.Schema, Iterator[Answer]]:
    """Schema and batches of a ticket; a batch is read when the one before was sent.

    Values are sent in place of dictionaries.

    Raises:
        OffsetOutOfRange: data_loss; the range begins beyond latest, or ends there
            and the ticket does not follow.
        StreamError: The topic, the partition or a column does not exist.
    """
    log = open_topic(store, ticket.topic, ticket.incarnation)
    bounds = _bounds(log, ticket.partition)
    start = bounds.earliest if ticket.start is None else ticket.start
    end = ticket.end
    if start > bounds.latest:
        remedy = "read from an offset between earliest and latest"
        raise _beyond(log, bounds, f"start {start}", start, remedy)
    if end is not None and end > bounds.latest and not ticket.follow:
        remedy = "read up to latest, or set follow to wait for the rows up to end"
        raise _beyond(log, bounds, f"end {end}", end, remedy)
    if end is None and not ticket.follow:
        end = bounds.latest

    remover = DictionaryRemover(_schema(log, ticket.fields), _BATCH_BYTES)

    def batches() -> Iterator[Answer]:
        at = start
        with meters.reading(log.name, ticket.partition, at) as meter:
            while end is None or at < end:
                most = _BATCH_ROWS if end is None else min(_BATCH_ROWS, end - at)
                found = read_coalesced(log, ticket.partition, at, most, _BATCH_BYTES)
                if found.rows is None:
                    if stopping.is_set() or context.is_cancelled():
                        return
                    log.wait(ticket.partition, at, _LONGEST_WAIT)
                    meter.touch()
                    continue
                sent = 0
                for rows in remover.slices(_selected(found.rows, ticket.fields)):
                    # Suspended until the client takes the batch.
                    yield rows, _delivery(found, 0, sent)
                    sent += rows.num_rows
                meter.sent(at, sent, found.size)
                at += sent

    return remover.schema, batches()


def serve_subscription(
    store: LogStore,
    wanted: Subscribe,
    reader: fl.MetadataRecordBatchReader,
    writer: fl.MetadataRecordBatchWriter,
    stopping: threading.Event,
    meters: Meters,
) -> None:
    """Answer each `Fetch` of a client with one batch, empty after a timeout.

    Nothing is sent without a request: a slow client makes the server hold one batch.
    """
    log = open_topic(store, wanted.topic, wanted.incarnation)
    latest = _bounds(log, wanted.partition).latest
    schema = _schema(log, wanted.fields)
    writer.begin(schema)
    # `pa.array` and `from_pylist` would import pandas first, which takes a second.
    columns = [pa.nulls(0, field.type) for field in schema]
    nothing = pa.RecordBatch.from_arrays(columns, schema=schema)
    # Until the first request it is not known which rows the client wants.
    with meters.reading(log.name, wanted.partition, latest) as meter:
        while True:
            try:
                chunk = reader.read_chunk()
            except StopIteration:
                return
            request = decode(chunk.app_metadata or b"", Fetch)
            meter.touch()
            found = _fetch(log, wanted.partition, request, stopping)
            if found.rows is None:
                writer.write_with_metadata(nothing, _delivery(found, request.id))
                meter.sent(found.start, 0, 0)
            else:
                rows, metadata = _answer(found, wanted.fields, request.id)
                writer.write_with_metadata(rows, metadata)
                meter.sent(found.start, found.rows.num_rows, found.size)


def _fetch(
    log: Log, partition: int, request: Fetch, stopping: threading.Event
) -> LogSlice:
    rows = max(1, min(request.max_rows, _BATCH_ROWS))
    size = max(1, min(request.max_bytes, _BATCH_BYTES))
    found = read_coalesced(log, partition, request.start, rows, size)
    if found.rows is None and request.wait_ms > 0 and not stopping.is_set():
        wait = min(request.wait_ms / 1000, _LONGEST_WAIT)
        log.wait(partition, request.start, wait)
        found = read_coalesced(log, partition, request.start, rows, size)
    return found


def read_coalesced(
    log: Log, partition: int, start: int, max_rows: int, max_bytes: int
) -> LogSlice:
    """As `Log.read`, with small batches concatenated: messages have a fixed cost."""
    found = log.read(partition, start, max_rows=max_rows, max_bytes=max_bytes)
    if found.rows is None or found.rows.num_rows >= _SMALL_ROWS:
        return found
    end = start + found.rows.num_rows
    rows, size = max_rows - found.rows.num_rows, max_bytes - found.size
    if rows <= 0 or size <= 0 or end >= found.bounds.latest:
        return found
    more = log.read_run(partition, end, max_rows=rows, max_bytes=size)
    run = [found, *(one for one in more if one.rows is not None)]
    if len(run) == 1:
        return found
    parts = pa.concat_batches([one.rows for one in run])
    size = sum(one.size for one in run)
    return replace(run[-1], start=start, rows=parts, size=size)


def _answer(found: LogSlice, fields: Sequence[str] | None, number: int) -> Answer:
    assert found.rows is not None
    return _selected(found.rows, fields), _delivery(found, number)


def _selected(rows: pa.RecordBatch, fields: Sequence[str] | None) -> pa.RecordBatch:
    return rows if fields is None else rows.select(list(fields))


def _delivery(found: LogSlice, number: int, skipped: int = 0) -> bytes:
    place = found.bounds
    start = found.start + skipped
    return encode(Delivery(start, place.earliest, place.latest, number))


def _bounds(log: Log, partition: int) -> PartitionBounds:
    known = log.bounds()
    for bounds in known:
        if bounds.id == partition:
            return bounds
    raise no_such_partition(log.name, partition, len(known))


def _beyond(
    log: Log, bounds: PartitionBounds, what: str, offset: int, remedy: str
) -> OffsetOutOfRange:
    msg = (
        f"{what} is beyond latest: partition {bounds.id} of topic {log.name!r} has "
        f"offsets {bounds.earliest} to {bounds.latest}"
    )
    return OffsetOutOfRange(
        msg,
        earliest=bounds.earliest,
        latest=bounds.latest,
        partition=Partition(log.name, bounds.id),
        offset=offset,
        remedy=remedy,
    )


def _schema(log: Log, fields: Sequence[str] | None) -> pa.Schema:
    if fields is None:
        return log.schema
    names = log.schema.names
    known = set(names)
    for name in fields:
        if name not in known:
            msg = (
                f"topic {log.name!r} has no column {name!r}; it has: "
                f"{', '.join(map(repr, names))}"
            )
            raise FormatRefused(msg, remedy="name columns that the topic has")
    return pa.schema([log.schema.field(name) for name in fields])
