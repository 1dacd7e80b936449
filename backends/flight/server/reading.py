"""Reading from the server: ranges by ``DoGet``, subscriptions by ``DoExchange``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.flight as fl

from streamfactory.backends.flight.protocol.codec import decode, encode
from streamfactory.backends.flight.protocol.messages import Delivery, Fetch
from streamfactory.backends.flight.server.actions import open_topic
from streamfactory.spi import FormatRefused, TopicNotFound

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator, Sequence

    from streamfactory.arrowlog import LaneBounds, Log, LogSlice, LogStore
    from streamfactory.backends.flight.protocol.messages import Subscribe, Ticket

_BATCH_ROWS: Final = 65_536
_BATCH_BYTES: Final = 8 << 20
_LONGEST_WAIT: Final = 0.25
"""Seconds: how late a handler sees that its client has gone."""


def read_range(
    store: LogStore,
    ticket: Ticket,
    context: fl.ServerCallContext,
    stopping: threading.Event,
) -> fl.FlightDataStream:
    """The batches of a ticket; the next one is read when the client has taken one."""
    log = open_topic(store, ticket.topic, ticket.incarnation)
    lane = _lane(log, ticket.partition)
    start = lane.earliest if ticket.start is None else ticket.start
    end = ticket.end
    if end is None and not ticket.follow:
        end = lane.latest

    def batches() -> Iterator[tuple[pa.RecordBatch, bytes]]:
        at = start
        while end is None or at < end:
            most = _BATCH_ROWS if end is None else min(_BATCH_ROWS, end - at)
            found = log.read(
                ticket.partition, at, max_rows=most, max_bytes=_BATCH_BYTES
            )
            if found.rows is None:
                if stopping.is_set() or context.is_cancelled():
                    return
                log.wait(ticket.partition, at, _LONGEST_WAIT)
                continue
            yield _answer(found, ticket.fields, 0)
            at += found.rows.num_rows

    return fl.GeneratorStream(_schema(log, ticket.fields), batches())


def serve_subscription(
    store: LogStore,
    wanted: Subscribe,
    reader: fl.MetadataRecordBatchReader,
    writer: fl.MetadataRecordBatchWriter,
    stopping: threading.Event,
) -> None:
    """Answer each `Fetch` of a client with one batch, empty when none came in time.

    Nothing is sent that was not asked for: a slow client holds one batch at most.
    """
    log = open_topic(store, wanted.topic, wanted.incarnation)
    _lane(log, wanted.partition)
    schema = _schema(log, wanted.fields)
    writer.begin(schema)
    nothing = pa.RecordBatch.from_pylist([], schema=schema)
    while True:
        try:
            chunk = reader.read_chunk()
        except StopIteration:
            return
        request = decode(chunk.app_metadata or b"", Fetch)
        found = _fetch(log, wanted.partition, request, stopping)
        if found.rows is None:
            place = found.bounds
            delivery = Delivery(found.start, place.earliest, place.latest, request.id)
            writer.write_with_metadata(nothing, encode(delivery))
        else:
            rows, metadata = _answer(found, wanted.fields, request.id)
            writer.write_with_metadata(rows, metadata)


def _fetch(
    log: Log, partition: int, request: Fetch, stopping: threading.Event
) -> LogSlice:
    limits = {
        "max_rows": max(1, min(request.max_rows, _BATCH_ROWS)),
        "max_bytes": max(1, request.max_bytes),
    }
    found = log.read(partition, request.start, **limits)
    if found.rows is None and request.wait_ms > 0 and not stopping.is_set():
        wait = min(request.wait_ms / 1000, _LONGEST_WAIT)
        log.wait(partition, request.start, wait)
        found = log.read(partition, request.start, **limits)
    return found


def _answer(
    found: LogSlice, fields: Sequence[str] | None, number: int
) -> tuple[pa.RecordBatch, bytes]:
    rows, place = found.rows, found.bounds
    assert rows is not None
    if fields is not None:
        rows = rows.select(list(fields))
    return rows, encode(Delivery(found.start, place.earliest, place.latest, number))


def _lane(log: Log, partition: int) -> LaneBounds:
    for lane in log.bounds():
        if lane.id == partition:
            return lane
    msg = f"topic {log.name!r} has no partition {partition}"
    raise TopicNotFound(msg)


def _schema(log: Log, fields: Sequence[str] | None) -> pa.Schema:
    if fields is None:
        return log.schema
    try:
        return pa.schema([log.schema.field(name) for name in fields])
    except KeyError as error:
        msg = f"topic {log.name!r} has no single column {error.args[0]!r}"
        raise FormatRefused(msg) from None

