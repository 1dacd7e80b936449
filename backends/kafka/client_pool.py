"""Consumers of librdkafka, shared by all partition readers of a stream in one process.

One client costs four threads, ten descriptors and a queue. Without sharing, a worker
process of Spark that has read 40 partitions holds 40 of them. A reader acquires a
client for a range and releases it at the range's end. Clients differ in how much they
fetch at once (`FetchSize`), which librdkafka fixes when a client is created: a short
range is read in small requests, because what a client fetches beyond the range is lost
when another process reads the next one.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from streamfactory.backends.kafka.clients import (
    Watch,
    client_settings,
    isolation,
    keep_inherited,
    of_this_process,
    refused,
)
from streamfactory.backends.kafka.columns import ConsumedRows
from streamfactory.backends.kafka.native_columns import NativeRows, PartitionQueue
from streamfactory.backends.kafka.native_library import library_for
from streamfactory.backends.kafka.options import READING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamfactory.backends.kafka.columns import Kept, PolledRows
    from streamfactory.spi import Partition, StreamConfig

_KIB: Final = 1024
_MIB: Final = 1024**2
_MAX_AHEAD: Final = 64 * _MIB
"""librdkafka's own bound of its queue."""
_MAX_IDLE: Final = 8
"""Idle clients of one stream. A worker of Spark, which runs one task at a time, has at
most one of each size."""
_SHARE: Final = 3
"""Minimum ratio between a range and the data that may be fetched beyond it."""
_MAX_KEPT: Final = 8 * _MIB
"""Bytes of prefetched rows that the readers of one stream keep between ranges."""

_DEFAULTS: Final = {
    # Refill a full queue at once; librdkafka's default is after a second.
    "fetch.queue.backoff.ms": "2",
    # The end of a partition is reported when a fetch times out: keep it short.
    "fetch.wait.max.ms": "100",
    "fetch.error.backoff.ms": "100",
    # How long an existing topic may be unknown to a broker.
    "topic.metadata.propagation.max.ms": "5000",
}
_OWN: Final = {
    # A lost offset is an error; reading must not continue elsewhere.
    "auto.offset.reset": "error",
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "enable.partition.eof": "true",
}


@dataclass(frozen=True, slots=True)
class FetchSize:
    """How many bytes a client requests at once, and how many it queues ahead."""

    fetch: int
    ahead: int = 0
    """0: the next request is sent when the queue is empty."""

    @property
    def waste(self) -> int:
        """Maximum bytes that a client fetches beyond a range.

        One producer batch is always fetched completely, however long it is.
        """
        return self.fetch + self.ahead

    def settings(self) -> dict[str, str]:
        """The client's settings."""
        fetch = {"fetch.message.max.bytes": str(self.fetch)}
        if self.ahead:
            return {**fetch, "queued.max.messages.kbytes": str(self.ahead // _KIB)}
        return {
            **fetch,
            "queued.min.messages": "1",
            # A fetch request without result delays the next partition: librdkafka
            # sends one fetch request at a time to a broker.
            "fetch.wait.max.ms": "20",
        }


def fetch_sizes(batch_bytes: int) -> tuple[FetchSize, ...]:
    """The available sizes, from small to large.

    Args:
        batch_bytes: Maximum bytes of a batch; the largest size prefetches as much.
    """
    ahead = min(max(batch_bytes, _MIB), _MAX_AHEAD)
    bounded = [FetchSize(fetch * _KIB) for fetch in (16, 64, 256, 1024)]
    return (*bounded, FetchSize(_MIB, ahead))


def consumer_settings(
    config: StreamConfig,
    client_id: str,
    watch: Watch,
    size: Mapping[str, str] | None = None,
) -> dict[str, object]:
    """The settings of a librdkafka consumer; the user's settings take precedence.

    Args:
        config: The stream's configuration.
        client_id: Client id in the brokers' logs.
        watch: Receives the client's reports about the network.
        size: Settings of a `FetchSize`; librdkafka's defaults without it.
    """
    given = client_settings(config, "consumer", client_id, watch)
    return {
        **_DEFAULTS,
        **(size or {}),
        # Required by the client; not used without a subscription.
        "group.id": "streamfactory",
        **given,
        **_OWN,
        "isolation.level": isolation(config),
    }


class Client:
    """One librdkafka consumer, assigned to at most one partition.

    Args:
        config: The stream's configuration. Secrets are resolved here.
        client_id: Client id in the brokers' logs.
        size: Amount to fetch.

    Raises:
        ConfigError: config; the client rejects its settings.
    """

    def __init__(self, config: StreamConfig, client_id: str, size: FetchSize) -> None:
        self.size = size
        self.watch = Watch()
        self._pid = os.getpid()
        settings = consumer_settings(config, client_id, self.watch, size.settings())
        library = library_for(config, READING)
        if library is not None:
            settings = library.add_to(settings)
        try:
            self.consumer = Consumer(settings)
        except (KafkaException, ValueError, TypeError) as error:
            raise refused(error, config) from error
        self._queue: PartitionQueue | None = None
        if library is not None:
            # In the thread, and before the next client.
            self._queue = PartitionQueue(library, self.consumer, self.watch)

    @property
    def usable(self) -> bool:
        """False in a process that was forked from the client's process."""
        return of_this_process(self._pid)

    def assign(self, partition: Partition, offset: int) -> None:
        """Fetch only this partition, from an offset on."""
        self.watch.topic = None
        if self._queue is not None:
            self._queue.open(partition)
        self.consumer.assign([TopicPartition(partition.topic, partition.id, offset)])

    def rows(self, partition: Partition, *, headers: bool) -> PolledRows:
        """An empty batch, to be filled with messages of the assigned partition."""
        if self._queue is not None:
            return NativeRows(self._queue, partition, headers=headers)
        return ConsumedRows(self.consumer, partition, headers=headers)

    def unassign(self) -> None:
        """Stop fetching and drop queued messages."""
        self.consumer.unassign()
        if self._queue is not None:
            self._queue.close()

    def close(self) -> None:
        """Close the client, unless it belongs to the parent process of a fork."""
        if self.usable:
            if self._queue is not None:
                self._queue.close()
            self.consumer.close()
        else:
            keep_inherited(self.consumer)


class ClientPool:
    """The clients of one stream in one process. Thread-safe; safe to use after a fork.

    Args:
        config: The stream's configuration.
    """

    def __init__(self, config: StreamConfig) -> None:
        self._config = config
        self._sizes = fetch_sizes(config["batch.bytes"])
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._idle: list[Client] = []
        self._closed = False
        self._bytes_per_offset: dict[str, float] = {}
        self._kept: OrderedDict[object, Kept] = OrderedDict()

    def size_for(self, topic: str, start: int, end: int | None) -> FetchSize:
        """The fetch size for a range.

        The largest size that wastes at most a third of the range. For a topic of which
        nothing was read yet, the smallest.
        """
        if end is None:
            return self._sizes[-1]
        expected = self._bytes_per_offset.get(topic, 0.0) * (end - start)
        fitting = [size for size in self._sizes if _SHARE * size.waste <= expected]
        return fitting[-1] if fitting else self._sizes[0]

    def observe(self, topic: str, size: int, offsets: int) -> None:
        """Record the bytes of a number of offsets."""
        if offsets > 0:
            self._bytes_per_offset[topic] = size / offsets

    def acquire(self, client_id: str, size: FetchSize) -> Client:
        """A client of this fetch size, for one thread, until it is released.

        Raises:
            ConfigError: config; the client rejects its settings.
        """
        if not of_this_process(self._pid):
            self._reset_after_fork()
        with self._lock:
            for index in reversed(range(len(self._idle))):
                if self._idle[index].size == size:
                    return self._idle.pop(index)
        return Client(self._config, client_id, size)

    def release(self, client: Client) -> None:
        """Return a client to the pool. A failed one must be closed instead."""
        client.unassign()
        with self._lock:
            self._idle.append(client)
            most = 0 if self._closed else _MAX_IDLE
            surplus = self._idle[: max(0, len(self._idle) - most)]
            del self._idle[: len(surplus)]
        for one in surplus:
            one.close()

    def keep(self, owner: object, rows: Kept) -> None:
        """Keep prefetched rows for a reader; drops the oldest above the limit."""
        with self._lock:
            self._kept[owner] = rows
            self._kept.move_to_end(owner)
            total = sum(one.size for one in self._kept.values())
            while total > _MAX_KEPT:
                total -= self._kept.popitem(last=False)[1].size

    def take_kept(self, owner: object) -> Kept | None:
        """Remove and return the rows kept for a reader."""
        with self._lock:
            return self._kept.pop(owner, None)

    def close(self) -> None:
        """Close idle clients now, and others when they are released."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            self._kept.clear()
        for client in idle:
            client.close()

    def _reset_after_fork(self) -> None:
        """Start with an empty pool after a fork: the lock may be held forever."""
        for client in self._idle:
            client.close()
        self._reset()
