"""Consumer factory: reads partitions at exact offsets, with shared clients."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, ClassVar, Final

from confluent_kafka import KafkaException

from streamfactory.backends.kafka.client_pool import ClientPool
from streamfactory.backends.kafka.clients import brokers
from streamfactory.backends.kafka.columns import (
    Kept,
    next_chunk,
    payload_size,
)
from streamfactory.backends.kafka.errors import failure
from streamfactory.backends.kafka.fetch_sizes import Responses
from streamfactory.backends.kafka.metadata import KafkaMetadata
from streamfactory.spi import (
    BatchState,
    Claims,
    ConsumerFactory,
    Fetched,
    FetchLimits,
    MetadataProvider,
    Partition,
    PartitionLevelConsumer,
    StreamLevelConsumer,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confluent_kafka import KafkaError

    from streamfactory.backends.kafka.client_pool import Client
    from streamfactory.backends.kafka.columns import Polled, PolledRows
    from streamfactory.spi import StreamConfig

CLAIMS: Final = Claims(replayable=True, durable=True, shared=True)

_SLICE: Final = 0.2
"""Maximum seconds of one blocking call, which closing cannot interrupt."""
_LINGER: Final = 0.01
"""Seconds for which a non-empty batch waits for more messages."""
_MOST_BYTES: Final = 2**30
"""Maximum bytes of a batch: binary columns are limited to 2 GiB."""

_RECORD: Final = 10
"""Approximate bytes of a record besides key and value."""
_OBJECT: Final = 400
"""Approximate bytes that librdkafka takes for a message besides key and value."""
_KEPT: Final = 2**20
"""Bytes of messages beyond a range that one reader keeps."""


class KafkaConsumer(PartitionLevelConsumer):
    """Reads one partition, with a client that it holds while it reads a range.

    Args:
        config: The stream's configuration.
        client_id: Client id in the brokers' logs, for new clients.
        partition: The partition.
        clients: Pool shared with the other consumers of the stream.
    """

    def __init__(
        self,
        config: StreamConfig,
        client_id: str,
        partition: Partition,
        clients: ClientPool,
    ) -> None:
        self._config = config
        self._client_id = client_id
        self._partition = partition
        self._clients = clients
        self._headers = config.wants_headers
        self._patience = config["broker.timeout.millis"] / 1000
        self._doing = f"partition {partition} cannot be read"
        self._client: Client | None = None
        self._failed = False
        """Whether a fetch was interrupted, so the state of the client is unknown."""
        self._at: int | None = None
        """Position of the client."""
        self._responses: Responses | None = None
        """Measures what responses expand to, while that is unknown."""
        self._end: int | None = None
        """The end of the partition when the client last reached it."""
        self._error: KafkaError | None = None
        """An error to raise after the rows before it were returned."""

    def fetch_messages(
        self, start: int, end: int | None, limits: FetchLimits
    ) -> Fetched:
        kept = self._clients.take_kept(self)
        if kept is not None and kept.holds(start):
            return self._answer_kept(kept, start, end, limits)
        self._failed = True
        client = self._standing_at(start, end)
        rows = self._consume(client, start, end, limits)
        if rows.rows:
            answer = self._answer(rows, start)
        else:
            self._raise_error()
            answer = self._nothing(client, start)
        if self._error is None:
            self._release_early(client, end)
        self._failed = False
        return answer

    def close(self) -> None:
        client, self._client = self._client, None
        self._clients.take_kept(self)
        if client is None:
            return
        if self._failed or not client.usable:
            client.close()
        else:
            self._clients.release(client)

    # --- the client -------------------------------------------------------------------

    def _standing_at(self, start: int, end: int | None) -> Client:
        if self._client is not None and not self._client.usable:
            self._client.close()
            self._client = None
        if self._client is None:
            size = self._clients.sizes.choose(self._partition.topic, start, end)
            self._client = self._clients.acquire(self._client_id, size)
            self._at = None
        if self._at != start:
            self._client.assign(self._partition, start)
            self._at, self._end, self._error = start, None, None
            self._responses = Responses() if self._client.size.waits else None
        return self._client

    def _consume(
        self, client: Client, start: int, end: int | None, limits: FetchLimits
    ) -> PolledRows:
        most = limits.max_rows if end is None else min(limits.max_rows, end - start)
        began = time.monotonic()
        until = began + min(limits.timeout, _SLICE)
        rows = client.rows(self._partition, headers=self._headers)
        most_bytes = min(limits.max_bytes, _MOST_BYTES)
        self._raise_error()
        wanted, patience = 1, max(0.0, until - began)
        # A batch of several responses shows the bytes of none.
        linger = _LINGER if self._responses is None else 0.0
        while True:
            polled = rows.poll(wanted, most_bytes, patience)
            self._note(client, polled, rows.next_offset)
            left = most - rows.rows
            now = time.monotonic()
            full = polled.received == wanted
            over = rows.size >= most_bytes or now >= began + _SLICE
            if not full or left <= 0 or over or self._error or self._at == self._end:
                self._measure(client, rows, emptied=not full and not over)
                return rows
            # A reader of several partitions asks each without waiting: the timeout ends
            # the wait for the first message, not the reading of those that are queued.
            chunk = next_chunk(rows.rows, rows.size, most_bytes)
            wanted, patience = min(chunk, left), min(linger, max(0.0, until - now))

    def _note(self, client: Client, polled: Polled, next_offset: int) -> None:
        """Move the position to what was polled."""
        if polled.added or polled.end is not None:
            client.watch.clear()
        if polled.end is not None:
            # After control records and aborted rows, which are not returned.
            self._end = self._at = polled.end
        if polled.added:
            self._at = max(next_offset, self._at or 0)
        self._error = polled.error

    def _measure(self, client: Client, rows: PolledRows, *, emptied: bool) -> None:
        """Record what a response expanded to, if there were more bytes to fetch."""
        if self._responses is None:
            return
        size = rows.size + _OBJECT * rows.rows
        expanded = self._responses.add(size, emptied=emptied)
        if expanded and client.is_behind(self._partition, rows.next_offset):
            sizes, self._responses = self._clients.sizes, None
            sizes.observe_response(self._partition.topic, client.size, expanded)

    def _release_early(self, client: Client, end: int | None) -> None:
        """Release the client at the end of a range, or if a larger one pays off.

        An assigned client prefetches messages that another process may read, and keeps
        a fetch request open at the broker.
        """
        at = self._at
        if at is None:
            return
        if end is None or at < end:
            topic, sizes = self._partition.topic, self._clients.sizes
            larger = sizes.choose(topic, at, end).waste > client.size.waste
            if not larger and not sizes.expands(topic, client.size):
                return
        self._client, self._at = None, None
        rows = client.rows(self._partition, headers=self._headers)
        rows.drain(_KEPT, lambda: self._clients.release(client))
        if rows.rows:
            self._clients.keep(self, Kept(rows.batch(), at, rows.next_offset))

    def _raise_error(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise failure(error, self._doing, where=brokers(self._config))

    # --- answers ----------------------------------------------------------------------

    def _answer(self, rows: PolledRows, start: int) -> Fetched:
        at_end = self._end is not None and self._end == self._at
        after = self._at or rows.next_offset
        size = rows.size + _RECORD * rows.rows
        self._clients.sizes.observe(self._partition.topic, size, after - start)
        return Fetched(
            rows.batch(),
            after,
            latest=self._end if at_end else None,
            # The broker would have refused a deleted offset.
            held_from=start,
            size=rows.size,
        )

    def _answer_kept(
        self, kept: Kept, start: int, end: int | None, limits: FetchLimits
    ) -> Fetched:
        rows, after, rest = kept.split(start, end, limits.max_rows)
        if rest is not None:
            self._clients.keep(self, rest)
        if not rows.num_rows:
            return Fetched(None, after, held_from=start)
        return Fetched(rows, after, held_from=start, size=payload_size(rows))

    def _nothing(self, client: Client, start: int) -> Fetched:
        self._check_network(client)
        at, watch = max(start, self._at or 0), client.watch
        if self._end is not None and self._end == self._at and not watch.troubled:
            return Fetched(
                None,
                at,
                state=BatchState.CAUGHT_UP,
                latest=self._end,
                held_from=start,
            )
        return Fetched(None, at, held_from=start)

    def _check_network(self, client: Client) -> None:
        where, watch = brokers(self._config), client.watch
        error = watch.refusal(self._doing, where)
        if error is not None:
            raise error
        lost = watch.down_since
        if lost is None or time.monotonic() - lost < self._patience:
            return
        # Without messages the client does not report that brokers are back: ask.
        try:
            client.consumer.list_topics(self._partition.topic, timeout=_SLICE)
        except KafkaException as cause:
            raise watch.unreachable(self._doing, where, self._patience) from cause
        watch.clear()


class KafkaConsumerFactory(ConsumerFactory):
    """Reads the topics of one cluster."""

    CLAIMS: ClassVar = CLAIMS

    def __init__(self, config: StreamConfig) -> None:
        super().__init__(config)
        self._clients = ClientPool(config)

    def create_partition_level_consumer(
        self,
        client_id: str,
        partition: Partition,
        fields_to_read: Sequence[str] | None = None,
    ) -> PartitionLevelConsumer:
        # Clients are shared by partitions, so drop the partition from the id.
        shared_id = client_id.removesuffix(f"-{partition}")
        return KafkaConsumer(self.config, shared_id, partition, self._clients)

    def create_metadata_provider(self, client_id: str) -> MetadataProvider:
        return KafkaMetadata(self.config, client_id)

    def create_stream_level_consumer(
        self, client_id: str, group_id: str
    ) -> StreamLevelConsumer:
        from streamfactory.backends.kafka.groups import KafkaGroupMember

        return KafkaGroupMember(self.config, client_id, group_id)

    def close(self) -> None:
        self._clients.close()
