"""The `flight` backend, as the framework calls it, on a server in another process."""

from __future__ import annotations

import statistics
import threading
import time
import uuid
from contextlib import closing
from typing import TYPE_CHECKING, Any

import streamfactory
from streamfactory.spi import (
    CommitMessage,
    FetchLimits,
    Outgoing,
    Partition,
    WriteContext,
)
from streamfactory.wiring.config.configure import configure
from streamfactory.wiring.config.definition import from_mapping
from streamfactory.wiring.plugins.manager import default_manager
from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

LIMITS = FetchLimits(65_536, 8 * 1024**2, 60.0)


def stream(location: str, topic: str, **more: str) -> dict[str, str]:
    """Properties of a topic on a server."""
    return {
        "streamType": "flight",
        "stream.flight.location": location,
        "stream.flight.topic.name": topic,
        **more,
    }


class Topic:
    """One topic, written and read by the backend's own classes.

    Args:
        location: Of the server.
        name: Of the topic.
    """

    def __init__(self, location: str, name: str) -> None:
        self._name = name
        self._made = configure(
            from_mapping(stream(location, name)), default_manager(), use="read"
        )
        self._writes = configure(
            from_mapping(stream(location, name)), default_manager(), use="write"
        )
        self._epoch = 0

    def put(self, rows: Sequence[pa.RecordBatch]) -> None:
        """Write an epoch, and commit it."""
        backend = self._writes.backend
        assert backend.producer_factory is not None
        with closing(backend.producer_factory(self._writes.config)) as factory:
            context = WriteContext(
                "w", self._epoch, 0, uuid.uuid4().hex, schema=rows[0].schema
            )
            with closing(factory.create_writer(context)) as writer:
                for batch in rows:
                    writer.write(Outgoing(batch, 0))
                message = CommitMessage(context, payload=writer.commit())
            with closing(factory.create_committer("w")) as committer:
                committer.commit(self._epoch, [message])
        self._epoch += 1

    def get(self) -> int:
        """Read everything; its rows."""
        backend = self._made.backend
        assert backend.consumer_factory is not None
        rows = 0
        with closing(backend.consumer_factory(self._made.config)) as factory:
            partition = Partition(self._name, 0)
            consumer = factory.create_partition_level_consumer("benchmark", partition)
            with closing(consumer):
                while True:
                    found = consumer.fetch_messages(rows, None, LIMITS)
                    rows = found.next_offset
                    if found.latest == rows:
                        return rows

    def delete(self) -> None:
        """Delete the topic."""
        backend = self._writes.backend
        assert backend.topic_admin is not None
        with closing(backend.topic_admin(self._writes.config)) as admin:
            admin.delete(self._name)
        self._epoch = 0


def trips_ours(
    location: str, rows: pa.RecordBatch, count: int, writer_id: str | None
) -> float:
    """Median seconds from before a put until a follower has its rows."""
    topic = f"trips-{uuid.uuid4().hex}"
    properties = stream(location, topic)
    received: list[float] = []
    arrived = threading.Semaphore(0)
    with open_sink(properties) as sink:
        sink.put(rows, writer_id=writer_id)
        reader = streamfactory.open(properties, start="latest", follow=True)

        def follow() -> None:
            while len(received) < count:
                batch: Any = reader.next_batch(10)
                if batch is not None and batch.num_rows:
                    received.append(time.perf_counter())
                    arrived.release()

        with closing(reader):
            assert reader.position  # has begun, before the first row
            following = threading.Thread(target=follow)
            following.start()
            sent = []
            for epoch in range(1, count + 1):
                sent.append(time.perf_counter())
                sink.put(rows, writer_id=writer_id, epoch=epoch)
                arrived.acquire()
            following.join()
    return statistics.median(b - a for a, b in zip(sent, received, strict=True))
