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
from streamfactory.backends.kafka.fetch_sizes import FetchSizes
from streamfactory.backends.kafka.native_columns import NativeRows, PartitionQueue
from streamfactory.backends.kafka.native_library import library_for
from streamfactory.backends.kafka.options import READING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamfactory.backends.kafka.columns import Kept, PolledRows
    from streamfactory.backends.kafka.fetch_sizes import FetchSize
    from streamfactory.spi import Partition, StreamConfig

_MAX_IDLE: Final = 8
"""Idle clients of one stream. A worker of Spark, which runs one task at a time, has at
most one of each size."""
_MAX_KEPT: Final = 8 * 1024**2
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

    def is_behind(self, partition: Partition, offset: int) -> bool:
        """Whether the partition had more messages when the last response was sent."""
        asked = TopicPartition(partition.topic, partition.id)
        return offset < self.consumer.get_watermark_offsets(asked, cached=True)[1]

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
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._idle: list[Client] = []
        self._closed = False
        given = self._config.client_properties("consumer")
        self.sizes = FetchSizes(given, self._config["batch.bytes"])
        """Chooses what clients fetch at once."""
        self._kept: OrderedDict[object, Kept] = OrderedDict()

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
