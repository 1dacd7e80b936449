"""Rows through `socket`, as the framework calls the backend."""

from __future__ import annotations

import statistics
import sys
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

from benchmarks.wire.moved import TRIPS, Watch, batch_of_one, distinct, enough

from streamfactory.spi import (
    Failed,
    FetchLimits,
    Finished,
    Outgoing,
    Partition,
    WriteContext,
)
from streamfactory.wiring.config.configure import configure
from streamfactory.wiring.config.definition import from_mapping
from streamfactory.wiring.plugins.manager import default_manager

if TYPE_CHECKING:
    import pyarrow as pa


def ours_sender(medium: str, where: str, rows: int) -> float:
    """Write the batches by the backend's writer.

    Returns:
        Seconds of the processor.
    """
    found = distinct(rows)
    factory, writer = writing(medium, where, 0, found[0].schema, way="listen")
    with closing(factory):
        watch = Watch()
        for batch in enough(found):
            writer.write(Outgoing(batch, 0))
        factory.end_stream(Finished())
        busy = watch.read()[1]
        writer.close()
    return busy


def read_ours(medium: str, where: str) -> tuple[float, float]:
    """Read by the backend's consumer until the end."""
    factory, consumer = reading(medium, where, 0, way="connect")
    limits = FetchLimits(65_536, 8 * 1024**2, 60.0)
    at, watch, end = 0, None, None
    with closing(factory), closing(consumer):
        while end is None:
            fetched = consumer.fetch_messages(at, None, limits)
            at, end = fetched.next_offset, fetched.end
            if watch is None and fetched.rows is not None:
                watch = Watch()
    if watch is None or isinstance(end, Failed):
        sys.exit(f"the stream ended: {end}")
    return watch.read()


def our_echo(medium: str, where: str, _rows: int) -> float:
    """Write back whatever is read."""
    reader, consumer = reading(medium, where, 0, way="listen")
    writer_of, writer = writing(medium, where, 1, batch_of_one().schema, way="connect")
    limits = FetchLimits(65_536, 8 * 1024**2, 60.0)
    at, end = 0, None
    with closing(reader), closing(consumer), closing(writer_of), closing(writer):
        while end is None:
            fetched = consumer.fetch_messages(at, None, limits)
            at, end = fetched.next_offset, fetched.end
            if fetched.rows is not None:
                writer.write(Outgoing(fetched.rows, 0))
        writer_of.end_stream(Finished())
    return 0.0


def trips_ours(medium: str, where: str) -> tuple[float, float]:
    """Write a row, and read it back."""
    row = batch_of_one()
    reader, consumer = reading(medium, where, 1, way="listen")
    writer_of, writer = writing(medium, where, 0, row.schema, way="connect")
    limits = FetchLimits(65_536, 8 * 1024**2, 60.0)
    seconds, at = [], 0
    with closing(reader), closing(consumer), closing(writer_of), closing(writer):
        # Listens at once: the other process connects when it has the first row.
        consumer.fetch_messages(0, None, FetchLimits(1, 1, 0.0))
        for _ in range(TRIPS):
            started = time.perf_counter()
            writer.write(Outgoing(row, 0))
            rows = None
            while rows is None:
                fetched = consumer.fetch_messages(at, None, limits)
                at, rows = fetched.next_offset, fetched.rows
            seconds.append(time.perf_counter() - started)
        writer_of.end_stream(Finished())
        consumer.fetch_messages(at, None, limits)
    return statistics.median(seconds), 0.0


def writing(
    medium: str, where: str, number: int, schema: pa.Schema, *, way: str
) -> tuple[Any, Any]:
    """The backend's factory and writer."""
    made = configured(medium, where, number, way, "write")
    factory = made.backend.producer_factory(made.config)
    context = WriteContext(None, 0, 0, "benchmark", schema=schema)
    return factory, factory.create_writer(context)


def reading(medium: str, where: str, number: int, *, way: str) -> tuple[Any, Any]:
    """The backend's factory and consumer."""
    made = configured(medium, where, number, way, "read")
    factory = made.backend.consumer_factory(made.config)
    partition = Partition("rows", 0)
    return factory, factory.create_partition_level_consumer("benchmark", partition)


def configured(medium: str, where: str, number: int, way: str, use: str) -> Any:
    """The configuration, checked."""
    unix = f"unix:{where}/{number}"
    address = unix if medium == "unix" else f"127.0.0.1:{int(where) + number}"
    properties = {"streamType": "socket", f"stream.socket.{way}": address}
    return configure(from_mapping(properties), default_manager(), use=use)
