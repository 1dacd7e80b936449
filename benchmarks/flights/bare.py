"""Flight with nothing around it: a table in memory, batches that are kept, an echo."""

from __future__ import annotations

import statistics
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.flight as fl
from benchmarks.measuring.rows import batches

if TYPE_CHECKING:
    from collections.abc import Sequence

DESCRIPTOR = fl.FlightDescriptor.for_path("rows")


class BareServer(fl.FlightServerBase):  # type: ignore[misc]
    """What the ratios are of."""

    def __init__(self, rows: int, size: int) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self._table = pa.Table.from_batches(batches(rows, size))

    def do_get(self, context: Any, ticket: Any) -> fl.FlightDataStream:
        """Send the table."""
        return fl.RecordBatchStream(self._table)

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Keep all batches until the end."""
        kept = []
        with suppress(StopIteration):
            while True:
                kept.append(reader.read_chunk().data)

    def do_action(self, context: Any, action: Any) -> list[bytes]:
        """Answer at once."""
        return [b""]

    def do_exchange(
        self, context: Any, descriptor: Any, reader: Any, writer: Any
    ) -> None:
        """Send each batch back."""
        writer.begin(reader.schema)
        with suppress(StopIteration):
            while True:
                writer.write_batch(reader.read_chunk().data)


def serve_bare(rows: int, size: int) -> None:
    """Print the port, and serve until standard input ends."""
    server = BareServer(rows, size)
    print(server.port, flush=True)
    sys.stdin.read()
    server.shutdown()


def get_bare(client: fl.FlightClient, ticket: bytes = b"") -> int:
    """Read a stream chunk by chunk; its rows."""
    reader, rows = client.do_get(fl.Ticket(ticket)), 0
    with suppress(StopIteration):
        while True:
            rows += reader.read_chunk().data.num_rows
    return rows


def put_bare(client: fl.FlightClient, rows: Sequence[pa.RecordBatch]) -> None:
    """Write batches, and wait for the verdict."""
    writer, _ = client.do_put(DESCRIPTOR, rows[0].schema)
    for batch in rows:
        writer.write_batch(batch)
    writer.close()


def trips_bare(client: fl.FlightClient, rows: pa.RecordBatch, count: int) -> float:
    """Median seconds of a batch there and back."""
    writer, reader = client.do_exchange(DESCRIPTOR)
    writer.begin(rows.schema)
    took = []
    for _ in range(count):
        started = time.perf_counter()
        writer.write_batch(rows)
        reader.read_chunk()
        took.append(time.perf_counter() - started)
    writer.done_writing()
    writer.close()
    return statistics.median(took)


def actions_bare(client: fl.FlightClient, count: int) -> float:
    """Median seconds of an action."""
    took = []
    for _ in range(count):
        started = time.perf_counter()
        list(client.do_action(fl.Action("nothing", b"")))
        took.append(time.perf_counter() - started)
    return statistics.median(took)
