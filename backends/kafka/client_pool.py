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
    inherit,
    isolation,
    of_this_process,
    refused,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamfactory.backends.kafka.columns import Kept
    from streamfactory.spi import Partition, StreamConfig

_KIB: Final = 1024
_MIB: Final = 1024**2
_MAX_AHEAD: Final = 64 * _MIB
"""librdkafka's own bound of its queue."""
_MAX_IDLE: Final = 8
"""Idle clients of one stream. A worker of Spark, which runs one task at a time, has at
most one of each size."""
_SHARE: Final = 3
"""A range is at least so many times as long as what may be fetched beyond it."""
_MAX_KEPT: Final = 8 * _MIB
"""Bytes of prefetched rows that the readers of one stream keep between ranges."""

_DEFAULTS: Final = {
    # A queue that was full is filled again at once, not after a second.
    "fetch.queue.backoff.ms": "2",
    # Ends of partitions are told by fetches that wait in vain.
    "fetch.wait.max.ms": "100",
    "fetch.error.backoff.ms": "100",
    # How long a topic that was there may be unknown to a broker.
    "topic.metadata.propagation.max.ms": "5000",
}
_OWN: Final = {
    # What is gone is an error, and no reason to begin elsewhere.
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
        """Bytes that a client fetches beyond a range, at most.

        One batch of the producer is always fetched whole, however long it is.
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
            # A request that waits in vain delays the next partition: librdkafka sends
            # a broker one fetch request at a time.
            "fetch.wait.max.ms": "20",
        }


def fetch_sizes(batch_bytes: int) -> tuple[FetchSize, ...]:
    """The sizes that ranges choose from, from small to large.

    Args:
        batch_bytes: Of a batch, at most; the largest size queues as much ahead.
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
    """What a consumer of librdkafka is made with; the user's settings come last.

    Args:
        config: The stream's configuration.
        client_id: Names the client in the brokers' logs.
        watch: Receives what the client reports of the network.
        size: Of `FetchSize`; librdkafka's defaults without it.
    """
    given = client_settings(config, "consumer", client_id, watch)
    return {
        **_DEFAULTS,
        **(size or {}),
        # The client wants one, and does nothing with it where nobody subscribes.
        "group.id": "streamfactory",
        **given,
        **_OWN,
        "isolation.level": isolation(config),
    }


class Client:
    """One consumer of librdkafka, assigned to one partition or to none.

    Args:
        config: The stream's configuration; secrets are resolved here.
        client_id: Names the client in the brokers' logs.
        size: How much it fetches.

    Raises:
        ConfigError: config; the client refuses its settings.
    """

    def __init__(self, config: StreamConfig, client_id: str, size: FetchSize) -> None:
        self.size = size
        self.watch = Watch()
        self._pid = os.getpid()
        settings = consumer_settings(config, client_id, self.watch, size.settings())
        try:
            self.consumer = Consumer(settings)
        except (KafkaException, ValueError, TypeError) as error:
            raise refused(error, config) from error

    @property
    def usable(self) -> bool:
        """False in a process that was forked from the client's."""
        return of_this_process(self._pid)

    def assign(self, partition: Partition, offset: int) -> None:
        """Fetch one partition from an offset on, and nothing else."""
        self.watch.topic = None
        self.consumer.assign([TopicPartition(partition.topic, partition.id, offset)])

    def unassign(self) -> None:
        """Fetch nothing; what is queued is lost."""
        self.consumer.unassign()

    def close(self) -> None:
        """Close it, unless it belongs to the process that this one was forked from."""
        if self.usable:
            self.consumer.close()
        else:
            inherit(self.consumer)


class ClientPool:
    """The clients of one stream in one process. Thread-safe; survives a fork.

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
        """How much a client should fetch that reads a range.

        The largest size that wastes no more than a third of the range. A topic of which
        nothing was read yet begins with the smallest.
        """
        if end is None:
            return self._sizes[-1]
        expected = self._bytes_per_offset.get(topic, 0.0) * (end - start)
        fitting = [size for size in self._sizes if _SHARE * size.waste <= expected]
        return fitting[-1] if fitting else self._sizes[0]

    def observe(self, topic: str, size: int, offsets: int) -> None:
        """Note how many bytes a number of offsets had."""
        if offsets > 0:
            self._bytes_per_offset[topic] = size / offsets

    def acquire(self, client_id: str, size: FetchSize) -> Client:
        """A client that fetches so much, for one thread, until it is released.

        Raises:
            ConfigError: config; the client refuses its settings.
        """
        if not of_this_process(self._pid):
            self._leave_to_parent()
        with self._lock:
            for index in reversed(range(len(self._idle))):
                if self._idle[index].size == size:
                    return self._idle.pop(index)
        return Client(self._config, client_id, size)

    def release(self, client: Client) -> None:
        """Let others use a client. One that failed is closed instead."""
        client.unassign()
        with self._lock:
            self._idle.append(client)
            most = 0 if self._closed else _MAX_IDLE
            surplus = self._idle[: max(0, len(self._idle) - most)]
            del self._idle[: len(surplus)]
        for one in surplus:
            one.close()

    def keep(self, owner: object, rows: Kept) -> None:
        """Keep prefetched rows for a reader; those kept for longest make room."""
        with self._lock:
            self._kept[owner] = rows
            self._kept.move_to_end(owner)
            total = sum(one.size for one in self._kept.values())
            while total > _MAX_KEPT:
                total -= self._kept.popitem(last=False)[1].size

    def take_kept(self, owner: object) -> Kept | None:
        """The rows kept for a reader, which are not kept any more."""
        with self._lock:
            return self._kept.pop(owner, None)

    def close(self) -> None:
        """Close what is idle now, and later what is released."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            self._kept.clear()
        for client in idle:
            client.close()

    def _leave_to_parent(self) -> None:
        """Begin anew in a forked process; a thread of the parent may hold the lock."""
        for client in self._idle:
            client.close()
        self._reset()
