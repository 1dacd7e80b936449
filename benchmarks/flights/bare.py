"""Flight with nothing around it: a table in memory, batches that are kept, an echo.

Two calls more show what no server of streams can leave out: a put whose batches are
validated, and a relay from a publisher's call to a follower's.
"""

from __future__ import annotations

import statistics
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.flight as fl
from benchmarks.measuring.rows import batches

from streamfactory.spi import BatchValidator

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

DESCRIPTOR = fl.FlightDescriptor.for_path("rows")
VALIDATED = fl.FlightDescriptor.for_path("validated")
PUBLISH = fl.FlightDescriptor.for_path("publish")
FOLLOW = fl.FlightDescriptor.for_path("follow")


class BareServer(fl.FlightServerBase):  # type: ignore[misc]
    """What the ratios are of."""

    def __init__(self, rows: int, size: int) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self._table = pa.Table.from_batches(batches(rows, size))
        self._changed = threading.Condition()
        self._published: pa.RecordBatch | None = None

    def do_get(self, context: Any, ticket: Any) -> fl.FlightDataStream:
        """Send the table."""
        return fl.RecordBatchStream(self._table)

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Keep all batches until the end."""
        kept = []
        check: Callable[[pa.RecordBatch], object] = bool
        if descriptor == VALIDATED:
            check = BatchValidator(reader.schema).validate
        with suppress(StopIteration):
            while True:
                batch = reader.read_chunk().data
                check(batch)
                kept.append(batch)

    def do_action(self, context: Any, action: Any) -> list[bytes]:
        """Answer at once."""
        return [b""]

    def do_exchange(
        self, context: Any, descriptor: Any, reader: Any, writer: Any
    ) -> None:
        """Send each batch back, or from publishers to a follower that asks."""
        if descriptor == FOLLOW:
            self._follow(reader, writer)
            return
        writer.begin(reader.schema)
        with suppress(StopIteration):
            while True:
                batch = reader.read_chunk().data
                if descriptor == PUBLISH:
                    with self._changed:
                        self._published = batch
                        self._changed.notify_all()
                    writer.write_metadata(b"done")
                else:
                    writer.write_batch(batch)

    def _follow(self, reader: Any, writer: Any) -> None:
        has_begun = False
        with suppress(StopIteration):
            while True:
                reader.read_chunk()
                with self._changed:
                    self._changed.wait_for(lambda: self._published is not None)
                    batch, self._published = self._published, None
                assert batch is not None
                if not has_begun:
                    writer.begin(batch.schema)
                    has_begun = True
                writer.write_batch(batch)


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


def put_bare(
    client: fl.FlightClient,
    rows: Sequence[pa.RecordBatch],
    descriptor: fl.FlightDescriptor = DESCRIPTOR,
) -> None:
    """Write batches, and wait for the verdict."""
    writer, _ = client.do_put(descriptor, rows[0].schema)
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


def trips_relayed(client: fl.FlightClient, rows: pa.RecordBatch, count: int) -> float:
    """Median seconds from before a publisher's batch until a follower has it."""
    writer, answers = client.do_exchange(PUBLISH)
    writer.begin(rows.schema)
    asking, reader = client.do_exchange(FOLLOW)
    received: list[float] = []
    arrived = threading.Semaphore(0)

    def follow() -> None:
        for _ in range(count):
            asking.write_metadata(b"next")
            reader.read_chunk()
            received.append(time.perf_counter())
            arrived.release()

    following = threading.Thread(target=follow)
    following.start()
    sent = []
    for _ in range(count):
        sent.append(time.perf_counter())
        writer.write_batch(rows)
        answers.read_chunk()
        arrived.acquire()
    following.join()
    for one in (writer, asking):
        one.done_writing()
        one.close()
    return statistics.median(b - a for a, b in zip(sent, received, strict=True))


def actions_bare(client: fl.FlightClient, count: int) -> float:
    """Median seconds of an action."""
    took = []
    for _ in range(count):
        started = time.perf_counter()
        list(client.do_action(fl.Action("nothing", b"")))
        took.append(time.perf_counter() - started)
    return statistics.median(took)
