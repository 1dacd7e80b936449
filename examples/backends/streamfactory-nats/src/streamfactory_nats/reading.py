"""Reading: a pull consumer for each partition, and the bounds of its stream."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import nats.errors
import pyarrow as pa
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from streamfactory import spi

from streamfactory_nats import layout
from streamfactory_nats.commits import Commits
from streamfactory_nats.connection import Connection, request
from streamfactory_nats.layout import StreamInfo
from streamfactory_nats.messages import Received, envelopes

_IDLE_NS: Final = 60 * 10**9
"""The server removes a pull consumer that was not used for so long."""
_ACK: Final = "$JS.ACK."
"""What the reply subject of every message of a consumer begins with."""
_LATE: Final = 0.05
"""Seconds that an answer may come after its time."""
_MOST_MESSAGES: Final = 65_536
_MOST_BYTES: Final = 64 * 1024**2
"""Of one answer: half of what the client keeps before it drops messages."""


class Cursor:
    """A pull consumer of one stream. Used on the connection's loop.

    It acknowledges nothing: to the server each message is done when it was sent. A gap
    in the numbers of deliveries therefore ends the cursor.
    """

    def __init__(
        self, client: Client, info: StreamInfo, start: int, timeout: float
    ) -> None:
        self.client = client
        self.created = info.created
        self.at = start
        """The offset that the next message taken has, or is below."""
        self._stream = info.stream
        self._start = start
        self._timeout = timeout
        self._name: str | None = None
        self._inbox = client.new_inbox()
        self._subscription: Subscription | None = None
        self._buffer: deque[Received] = deque()
        self._deliveries = 0
        self._has_lost = False
        """Whether the number of a delivery was left out."""
        self._requests = 0
        self._reply = ""
        self._wanted = 0
        self._ended = asyncio.Event()
        """Set when the last request has ended."""

    async def open(self) -> None:
        """Create the consumer on the server."""
        config = {
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": max(1, self._start),
            "ack_policy": "none",
            "inactive_threshold": _IDLE_NS,
            "mem_storage": True,
            "num_replicas": 1,
        }
        body = {"stream_name": self._stream, "config": config}
        verb = f"CONSUMER.CREATE.{self._stream}"
        answer = await request(self.client, verb, body, timeout=self._timeout)
        self._name = answer["name"]
        self._subscription = await self.client.subscribe(
            f"{self._inbox}.*", cb=self._accept
        )

    async def fill(self, limits: spi.FetchLimits) -> bool:
        """Receive messages, waiting for the first one at most ``limits.timeout``.

        Returns:
            False where the server had no message when it answered.

        Raises:
            TimeoutError: The server has not answered: it does not where the consumer
                was removed.
        """
        if self._buffer:
            return True
        deadline = time.monotonic() + limits.timeout
        if await self._receive_all(limits):
            return True
        left = deadline - time.monotonic()
        if left <= 0.001:
            return False
        # A request that waits ends when its batch is full: ask for one message.
        waiting = {"batch": 1, "expires": int(left * 1e9)}
        if not await self._receive(waiting, left + _LATE):
            return False
        await self._receive_all(limits)
        return True

    async def _receive_all(self, limits: spi.FetchLimits) -> int:
        """Receive what the server has now, within the limits; how many messages."""
        batch = min(max(1, limits.max_rows), _MOST_MESSAGES)
        size = min(limits.max_bytes, _MOST_BYTES)
        timeout = limits.timeout + _LATE
        body = {"batch": batch, "max_bytes": size, "no_wait": True}
        received = await self._receive(body, timeout)
        # A message longer than the limit is not sent, as if there were none.
        return received or await self._receive({"batch": 1, "no_wait": True}, timeout)

    def take(self, end: int, limits: spi.FetchLimits) -> list[Received]:
        """Messages below ``end``, no more than a fetch may take."""
        taken: list[Received] = []
        size = 0
        while self._buffer and self._buffer[0].sequence < end:
            if len(taken) >= limits.max_rows or size >= limits.max_bytes:
                break
            message = self._buffer.popleft()
            taken.append(message)
            size += len(message.value)
        if taken:
            self.at = taken[-1].sequence + 1
        return taken

    @property
    def is_drained(self) -> bool:
        """Whether nothing received is left."""
        return not self._buffer

    async def close(self) -> None:
        """Remove the consumer from the server."""
        if self._subscription is not None:
            with contextlib.suppress(nats.errors.Error):
                await self._subscription.unsubscribe()
        if self._name is not None:
            # Without an answer: the server removes idle consumers by itself.
            verb = f"$JS.API.CONSUMER.DELETE.{self._stream}.{self._name}"
            with contextlib.suppress(nats.errors.Error):
                await self.client.publish(verb)

    async def _receive(self, body: Mapping[str, object], timeout: float) -> int:
        """Ask for messages; how many came until the request ended.

        Raises:
            TimeoutError: The server has neither sent a message nor ended the request.
            spi.ConnectionFailed: transient; a message was lost on the way.
        """
        # Messages keep their subject; the status that ends a request comes to its own.
        self._requests += 1
        self._reply = f"{self._inbox}.{self._requests}"
        self._wanted = self._deliveries + int(str(body["batch"]))
        self._ended = asyncio.Event()
        before = self._deliveries
        verb = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._name}"
        payload = json.dumps(body).encode()
        await self.client.publish(verb, payload, reply=self._reply)
        try:
            await asyncio.wait_for(self._ended.wait(), timeout)
        except TimeoutError:
            # The rest of a long answer is on its way, and is received by and by.
            if self._deliveries == before:
                raise
        if self._has_lost:
            msg = f"message {self._deliveries} of a JetStream consumer was lost"
            raise spi.ConnectionFailed(msg)
        return self._deliveries - before

    async def _accept(self, message: Msg) -> None:
        """Called for each message and each status that the server sends."""
        if not message.reply.startswith(_ACK):
            if message.subject == self._reply:
                self._ended.set()
            return
        # <stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<time>.<pending>
        tokens = message.reply.split(".")
        sequence, delivery, nanoseconds = (int(t) for t in tokens[-4:-1])
        self._deliveries += 1
        if delivery != self._deliveries:
            self._has_lost = True
        if self._has_lost or self._deliveries >= self._wanted:
            self._ended.set()
        if not self._has_lost:
            self._buffer.append(
                Received(sequence, nanoseconds, message.data, message.headers)
            )


class NatsConsumer(spi.PartitionLevelConsumer):
    """Reads one partition."""

    def __init__(self, connection: Connection, partition: spi.Partition) -> None:
        self._connection = connection
        self._partition = partition
        self._timeout = connection.timeout
        self._stream: str | None = None
        self._created: str | None = None
        """What the offsets of the last answer counted."""
        self._cursor: Cursor | None = None

    def fetch_messages(
        self, start: int, end: int | None, limits: spi.FetchLimits
    ) -> spi.Fetched:
        return self._connection.run(
            lambda client: self._fetch(client, start, limits),
            limits.timeout + self._timeout,
        )

    def close(self) -> None:
        cursor, self._cursor = self._cursor, None
        # After a fork, or a lost connection, there is nothing to be removed.
        if cursor is not None and not cursor.client.is_closed:
            with contextlib.suppress(spi.StreamError, TimeoutError, OSError):
                self._connection.run(lambda client: _close(client, cursor))

    async def _fetch(
        self, client: Client, start: int, limits: spi.FetchLimits
    ) -> spi.Fetched:
        cursor = self._cursor
        if cursor is None or cursor.client is not client or cursor.at != start:
            cursor = await self._seek(client, start)
        try:
            await cursor.fill(limits)
        except TimeoutError:
            self._cursor = None  # what it has received is taken below
            await cursor.close()
        # After the rows: what the stream holds now, it held when they were read.
        info = await self._info(client)
        if info.created != self._created or info.created != cursor.created:
            self._created, self._cursor = info.created, None
            await cursor.close()
            return spi.Fetched(None, info.first, incarnation=info.created)
        commits = Commits(client, self._partition.topic, self._timeout)
        [end] = await commits.visible_ends([info])
        messages = cursor.take(end, limits)
        if not messages:
            return await self._empty(cursor, info, end)
        return spi.Fetched(
            envelopes(self._partition, messages),
            cursor.at,
            latest=end,
            held_from=info.first,
            incarnation=info.created,
            size=sum(len(message.value) for message in messages),
        )

    async def _empty(
        self, cursor: Cursor, info: StreamInfo, latest: int
    ) -> spi.Fetched:
        """An answer without rows, beyond messages that were deleted."""
        if cursor is self._cursor and cursor.at < latest and cursor.is_drained:
            none = spi.FetchLimits(1, _MOST_BYTES, 0)
            with contextlib.suppress(TimeoutError):
                if not await cursor.fill(none):
                    # All before ``latest`` was stored when the server had nothing.
                    cursor.at = latest
        return spi.Fetched(
            None,
            cursor.at,
            state=spi.BatchState.CAUGHT_UP if cursor.at >= latest else None,
            latest=latest,
            held_from=info.first,
            incarnation=info.created,
        )

    async def _seek(self, client: Client, start: int) -> Cursor:
        if self._cursor is not None:
            await self._cursor.close()
            self._cursor = None
        info = await self._info(client)
        self._created = self._created or info.created
        cursor = Cursor(client, info, start, self._timeout)
        await cursor.open()
        self._cursor = cursor
        return cursor

    async def _info(self, client: Client) -> StreamInfo:
        if self._stream is None:
            infos = await layout.fetch_partitions(
                client, self._partition.topic, self._timeout
            )
            names = {info.partition: info.stream for info in infos}
            if self._partition not in names:
                msg = f"topic {self._partition.topic!r} has no such partition"
                raise spi.TopicNotFound(msg, partition=self._partition)
            self._stream = names[self._partition]
        return await layout.fetch_info(
            client, self._stream, self._partition, self._timeout
        )


class NatsMetadata(spi.MetadataProvider):
    """Asks JetStream for the streams of a topic."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._timeout = connection.timeout

    def fetch_partitions(
        self, topics: Sequence[str], known: Collection[spi.Partition]
    ) -> Sequence[spi.PartitionInfo]:
        async def fetch(client: Client) -> list[spi.PartitionInfo]:
            found: list[spi.PartitionInfo] = []
            for topic in topics:
                infos = await layout.fetch_partitions(client, topic, self._timeout)
                found += await self._bounds(client, topic, infos)
            return found

        return self._connection.run(fetch)

    def fetch_bounds(
        self, partitions: Collection[spi.Partition]
    ) -> Sequence[spi.PartitionInfo]:
        if len(partitions) > 1:
            return super().fetch_bounds(partitions)
        [partition] = partitions

        async def fetch(client: Client) -> list[spi.PartitionInfo]:
            stream = layout.stream_name(partition.topic, partition.id)
            try:
                info = await layout.fetch_info(client, stream, partition, self._timeout)
            except spi.TopicNotFound:
                every = await layout.fetch_partitions(
                    client, partition.topic, self._timeout
                )
                infos = [info for info in every if info.partition == partition]
            else:
                infos = [info]
            return await self._bounds(client, partition.topic, infos)

        return self._connection.run(fetch)

    def fetch_offsets_at(
        self, timestamp_ms: int, partitions: Collection[spi.Partition]
    ) -> Mapping[spi.Partition, int | None]:
        async def fetch(client: Client) -> dict[spi.Partition, int | None]:
            found: dict[spi.Partition, int | None] = {}
            for topic in sorted({partition.topic for partition in partitions}):
                infos = await layout.fetch_partitions(client, topic, self._timeout)
                wanted = [info for info in infos if info.partition in partitions]
                offsets = await asyncio.gather(
                    *(self._offset_at(client, info, timestamp_ms) for info in wanted)
                )
                found |= dict(
                    zip((info.partition for info in wanted), offsets, strict=True)
                )
            return found

        return self._connection.run(fetch)

    def fetch_schema(self, topic: str) -> pa.Schema:
        return spi.envelope_schema()

    def fetch_topics(self) -> Sequence[str]:
        return self._connection.run(
            lambda client: layout.fetch_topics(client, self._timeout)
        )

    async def _bounds(
        self, client: Client, topic: str, infos: Sequence[StreamInfo]
    ) -> list[spi.PartitionInfo]:
        ends = await Commits(client, topic, self._timeout).visible_ends(infos)
        return [
            spi.PartitionInfo(
                info.partition,
                min(info.first, end),
                end,
                incarnation=info.created,
                written=info.last + 1,
            )
            for info, end in zip(infos, ends, strict=True)
        ]

    async def _offset_at(
        self, client: Client, info: StreamInfo, timestamp_ms: int
    ) -> int | None:
        """Ask where a consumer that starts at the time would begin."""
        seconds, millis = divmod(timestamp_ms, 1000)
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
        config = {
            "deliver_policy": "by_start_time",
            "opt_start_time": f"{moment}.{millis:03d}Z",
            "ack_policy": "none",
            "inactive_threshold": _IDLE_NS,
            "mem_storage": True,
            "num_replicas": 1,
        }
        body = {"stream_name": info.stream, "config": config}
        verb = f"CONSUMER.CREATE.{info.stream}"
        answer = await request(client, verb, body, timeout=self._timeout)
        verb = f"CONSUMER.DELETE.{info.stream}.{answer['name']}"
        await request(client, verb, timeout=self._timeout)
        offset = int(answer["delivered"]["stream_seq"]) + 1
        commits = Commits(client, info.partition.topic, self._timeout)
        [end] = await commits.visible_ends([info])
        return offset if answer["num_pending"] and offset < end else None


class NatsConsumerFactory(spi.ConsumerFactory):
    """Makes the two above; holds the connection that they share."""

    CLAIMS = spi.Claims(
        replayable=True,
        durable=True,
        shared=True,
        redelivers=True,
    )

    def __init__(self, config: spi.StreamConfig) -> None:
        super().__init__(config)
        self._connection = Connection(config)

    def create_partition_level_consumer(
        self,
        client_id: str,
        partition: spi.Partition,
        fields_to_read: Sequence[str] | None = None,
    ) -> NatsConsumer:
        return NatsConsumer(self._connection, partition)

    def create_metadata_provider(self, client_id: str) -> NatsMetadata:
        return NatsMetadata(self._connection)

    def acknowledge(self, position: spi.Position) -> None:
        """Delete what is stored elsewhere, with ``delete.acknowledged``."""
        if not self.config["delete.acknowledged"]:
            return
        timeout = self._connection.timeout

        async def delete(client: Client) -> None:
            for topic in sorted({partition.topic for partition in position}):
                for info in await layout.fetch_partitions(client, topic, timeout):
                    await _delete_before(client, info, position, timeout)

        self._connection.run(delete)

    def claims(self) -> spi.Claims:
        if self.config["delete.acknowledged"]:
            return self.CLAIMS
        return spi.Claims(replayable=True, durable=True, shared=True)

    def close(self) -> None:
        self._connection.close()


async def _delete_before(
    client: Client, info: StreamInfo, position: spi.Position, timeout: float
) -> None:
    offset = position.get(info.partition, 0)
    counted = position.incarnations.get(info.partition, info.created)
    if counted != info.created or offset <= info.first:
        return
    # No further than what there is: sequence numbers would skip the rest.
    body = {"seq": min(offset, info.last + 1)}
    await request(client, f"STREAM.PURGE.{info.stream}", body, timeout=timeout)


async def _close(client: Client, cursor: Cursor) -> None:
    if cursor.client is client:
        await cursor.close()
