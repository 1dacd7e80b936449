"""The `flight` backend, as the framework calls it, on a server in another process."""

from __future__ import annotations

import statistics
import threading
import time
import uuid
from contextlib import closing
from typing import TYPE_CHECKING, Any, Self

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

    from streamfactory.spi import TopicAdmin

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
    """One topic, written and read by the backend's own classes. A context manager.

    It keeps its producer factory and its committer, as an open sink does, and as the
    bare client keeps its connection.

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
        self._epoch = self._rows = 0
        backend = self._writes.backend
        assert backend.producer_factory is not None
        self._factory = backend.producer_factory(self._writes.config)
        self._committer = self._factory.create_committer("w")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._committer.close()
        self._factory.close()

    def put(self, rows: Sequence[pa.RecordBatch]) -> None:
        """Write an epoch, and commit it; the first one creates the topic."""
        context = WriteContext(
            "w", self._epoch, 0, uuid.uuid4().hex, schema=rows[0].schema
        )
        with closing(self._factory.create_writer(context)) as writer:
            for batch in rows:
                writer.write(Outgoing(batch, 0))
            message = CommitMessage(context, payload=writer.commit())
        self._committer.commit(self._epoch, [message])
        self._epoch += 1
        self._rows += sum(batch.num_rows for batch in rows)

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

    def truncate(self) -> None:
        """Remove all rows that were put here."""
        with self._admin() as admin:
            admin.truncate(self._name, {0: self._rows})

    def delete(self) -> None:
        """Delete the topic."""
        with self._admin() as admin:
            admin.delete(self._name)

    def _admin(self) -> closing[TopicAdmin]:
        backend = self._writes.backend
        assert backend.topic_admin is not None
        return closing(backend.topic_admin(self._writes.config))


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
