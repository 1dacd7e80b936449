"""Consumer and metadata of plain Flight servers.

An endpoint is a partition, and a row's number is its offset. A server that answers each
``DoGet`` with the same rows in the same order (``plain.deterministic``) can be read
again; any other one is read once, from its first row.
"""

from __future__ import annotations

import queue
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow.flight as fl

from streamfactory.backends.flight.plain.endpoints import read
from streamfactory.spi import (
    BatchState,
    Failed,
    Fetched,
    FetchLimits,
    Finished,
    MetadataProvider,
    OffsetOutOfRange,
    Partition,
    PartitionInfo,
    PartitionLevelConsumer,
    StreamError,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import pyarrow as pa

    from streamfactory.backends.flight.plain.endpoints import Endpoints


class PlainConsumer(PartitionLevelConsumer):
    """Reads one endpoint; a thread reads one batch ahead."""

    def __init__(self, endpoints: Endpoints, partition: Partition) -> None:
        self._endpoints = endpoints
        self._partition = partition
        self._pump: Pump | None = None
        self._held: pa.RecordBatch | None = None
        self._at = 0
        """Offset of the first row of the held batch, or of the next one."""

    def fetch_messages(
        self, start: int, end: int | None, limits: FetchLimits
    ) -> Fetched:
        if self._pump is None or start < self._at:
            self._restart(start)
        try:
            return self._fetch(start, limits)
        except StreamError as error:
            if self._endpoints.deterministic:
                raise
            # An error would be retried, but earlier rows cannot be read again.
            return self._over(Failed(str(error)))

    def close(self) -> None:
        if self._pump is not None:
            self._pump.close()

    def _restart(self, start: int) -> None:
        if start and not self._endpoints.deterministic:
            msg = "the server is not declared deterministic: reading begins at offset 0"
            remedy = "set plain.deterministic=true if it repeats its rows in order"
            raise OffsetOutOfRange(msg, earliest=0, remedy=remedy)
        self.close()
        self._held, self._at = None, 0
        self._pump = Pump(self._endpoints, self._partition.id)

    def _fetch(self, start: int, limits: FetchLimits) -> Fetched:
        assert self._pump is not None
        timeout = limits.timeout
        while self._held is None or start >= self._at + self._held.num_rows:
            if self._held is not None:
                self._at += self._held.num_rows
                self._held = None
            found = self._pump.next(timeout)
            if found is None:
                return Fetched(None, start)
            if isinstance(found, Finished):
                if start > self._at:
                    msg = f"the endpoint has {self._at} rows"
                    raise OffsetOutOfRange(msg, earliest=0, latest=self._at)
                return self._over(found)
            self._held, timeout = found, 0.0 if start < self._at else timeout
        rows = self._held.slice(start - self._at, limits.max_rows)
        return Fetched(rows, start + rows.num_rows, held_from=0)

    def _over(self, end: Finished | Failed) -> Fetched:
        return Fetched(
            None,
            self._at,
            state=BatchState.END_OF_PARTITION,
            latest=self._at,
            end=end,
        )


class Pump:
    """A thread that reads an endpoint, one batch ahead of its use."""

    def __init__(self, endpoints: Endpoints, number: int) -> None:
        self._connection = endpoints.connection
        self._reader = endpoints.open(number)
        self._ready: queue.Queue[pa.RecordBatch | Finished | StreamError]
        self._ready = queue.Queue(maxsize=1)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def next(self, timeout: float) -> pa.RecordBatch | Finished | None:
        """The next batch, or the end; None when none came in time.

        Raises:
            StreamError: The call failed.
        """
        try:
            found = self._ready.get(timeout=max(timeout, 0.001))
        except queue.Empty:
            return None
        if isinstance(found, Finished | StreamError):
            self._ready.put(found)  # returned again at each later call
        if isinstance(found, StreamError):
            raise found
        return found

    def close(self) -> None:
        """Cancel the call and end the thread."""
        self._closed.set()
        with suppress(fl.FlightError, OSError):
            self._reader.cancel()
        while self._thread.is_alive():
            with suppress(queue.Empty):
                self._ready.get_nowait()
            self._thread.join(0.01)

    def _run(self) -> None:
        try:
            with self._connection.translated():
                for batch in read(self._reader):
                    self._ready.put(batch)
                    if self._closed.is_set():
                        return
        except StreamError as error:
            self._ready.put(error)
        else:
            self._ready.put(Finished())


class PlainMetadata(MetadataProvider):
    """Metadata from ``GetFlightInfo``.

    Rows are read only to count those of a server that repeats them.
    """

    def __init__(self, endpoints: Endpoints) -> None:
        self._endpoints = endpoints

    def fetch_partitions(
        self, topics: Sequence[str], known: Collection[Partition]
    ) -> Sequence[PartitionInfo]:
        return [
            PartitionInfo(Partition(topic, number), 0, self._endpoints.latest(number))
            for topic in topics
            for number in range(self._endpoints.count())
        ]

    def fetch_schema(self, topic: str) -> pa.Schema:
        return self._endpoints.schema()
