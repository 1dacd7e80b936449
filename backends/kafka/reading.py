"""The reading half: one client, assigned to one partition, at exact offsets."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, ClassVar, Final

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from streamfactory.backends.kafka.clients import (
    Watch,
    brokers,
    client_settings,
    inherit,
    isolation,
    of_this_process,
    refused,
)
from streamfactory.backends.kafka.columns import CHUNK, Columns
from streamfactory.backends.kafka.errors import failure
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

    from streamfactory.spi import StreamConfig

CLAIMS: Final = Claims(replayable=True, durable=True, shared=True)

_SLICE: Final = 0.2
"""Seconds that a call of the client may block: closing does not wake it."""
_LINGER: Final = 0.01
"""Seconds that a batch waits for more, once it has something."""
_MOST_BYTES: Final = 2**30
"""Of one batch: binary columns end at 2 GiB."""

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


def consumer_settings(
    config: StreamConfig, client_id: str, watch: Watch
) -> dict[str, object]:
    """What a consumer of librdkafka is made with."""
    given = client_settings(config, "consumer", client_id, watch)
    return {
        **_DEFAULTS,
        # The client wants one, and does nothing with it where nobody subscribes.
        "group.id": "streamfactory",
        **given,
        **_OWN,
        "isolation.level": isolation(config),
    }


def wants_headers(config: StreamConfig) -> bool:
    """Whether headers can be seen by anybody; asking for them costs time."""
    return (
        config.decoder in (None, "raw")
        or config["metadata.populate"]
        or config["includeHeaders"]
        or config["decode.on.error"] == "dead-letter"
    )


class KafkaConsumer(PartitionLevelConsumer):
    """Reads one partition. The client is made by the first fetch.

    Args:
        config: The stream's configuration.
        client_id: Names the client in the brokers' logs.
        partition: Which.
    """

    def __init__(
        self, config: StreamConfig, client_id: str, partition: Partition
    ) -> None:
        self._config = config
        self._client_id = client_id
        self._partition = partition
        self._headers = wants_headers(config)
        self._patience = config["broker.timeout.millis"] / 1000
        self._doing = f"partition {partition} cannot be read"
        self._watch = Watch()
        self._client: Consumer | None = None
        self._made_by = os.getpid()
        self._at: int | None = None
        """Where the client stands."""
        self._end: int | None = None
        """The end of the partition, when the client last met it."""
        self._error: KafkaError | None = None
        """Told after the rows before it."""

    def fetch_messages(
        self, start: int, end: int | None, limits: FetchLimits
    ) -> Fetched:
        client = self._standing_at(start)
        most = limits.max_rows if end is None else min(limits.max_rows, end - start)
        until = time.monotonic() + min(limits.timeout, _SLICE)
        columns = Columns(self._partition, headers=self._headers)
        most_bytes = min(limits.max_bytes, _MOST_BYTES)
        self._raise_error()
        wanted, patience = 1, max(0.0, until - time.monotonic())
        while True:
            messages = client.consume(wanted, patience)
            full = len(messages) == wanted
            self._take(messages, columns)
            left = most - columns.rows
            over = columns.size >= most_bytes or time.monotonic() >= until
            if not full or left <= 0 or over or self._error or self._at == self._end:
                break
            wanted, patience = min(CHUNK, left), _LINGER
        if columns.rows:
            return self._answer(columns, start)
        self._raise_error()
        return self._nothing(client, start)

    def close(self) -> None:
        client, self._client = self._client, None
        if client is None:
            return
        if of_this_process(self._made_by):
            client.close()
        else:
            inherit(client)

    # --- the client -------------------------------------------------------------------

    def _standing_at(self, start: int) -> Consumer:
        if self._client is not None and not of_this_process(self._made_by):
            inherit(self._client)
            self._client = None
        if self._client is None:
            self._made_by, self._watch, self._at = os.getpid(), Watch(), None
            settings = consumer_settings(self._config, self._client_id, self._watch)
            try:
                self._client = Consumer(settings)
            except (KafkaException, ValueError, TypeError) as error:
                raise refused(error, self._config) from error
        if self._at != start:
            where = TopicPartition(self._partition.topic, self._partition.id, start)
            self._client.assign([where])
            self._at, self._end, self._error = start, None, None
        return self._client

    def _take(self, messages: list[Message], columns: Columns) -> None:
        """Sort messages from events, of which there are few."""
        if any(map(Message.error, messages)):
            messages = self._without_events(messages)
        if messages:
            self._watch.well()
            columns.add(messages)
            self._at = max(columns.next_offset, self._at or 0)

    def _without_events(self, messages: list[Message]) -> list[Message]:
        kept = []
        for message in messages:
            error = message.error()
            if error is None:
                kept.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                # Beyond markers and aborted rows, which are no messages.
                self._end = self._at = message.offset()
                self._watch.well()
            elif not error.retriable():
                self._error = error
                break
        return kept

    def _raise_error(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise failure(error, self._doing, where=brokers(self._config))

    # --- answers ----------------------------------------------------------------------

    def _answer(self, columns: Columns, start: int) -> Fetched:
        at_end = self._end is not None and self._end == self._at
        return Fetched(
            columns.batch(),
            self._at or columns.next_offset,
            latest=self._end if at_end else None,
            # The broker refuses a position that it has dropped.
            held_from=start,
            size=columns.size,
        )

    def _nothing(self, client: Consumer, start: int) -> Fetched:
        self._check_network(client)
        at = max(start, self._at or 0)
        if self._end is not None and self._end == self._at and not self._watch.troubled:
            return Fetched(
                None,
                at,
                state=BatchState.CAUGHT_UP,
                latest=self._end,
                held_from=start,
            )
        return Fetched(None, at, held_from=start)

    def _check_network(self, client: Consumer) -> None:
        where, watch = brokers(self._config), self._watch
        error = watch.refusal(self._doing, where)
        if error is not None:
            raise error
        lost = watch.down_since
        if lost is None or time.monotonic() - lost < self._patience:
            return
        # That brokers are back is not told where there is nothing to read: ask.
        try:
            client.list_topics(self._partition.topic, timeout=_SLICE)
        except KafkaException as cause:
            raise watch.unreachable(self._doing, where, self._patience) from cause
        watch.well()


class KafkaConsumerFactory(ConsumerFactory):
    """Reads the topics of one cluster."""

    CLAIMS: ClassVar = CLAIMS

    def create_partition_level_consumer(
        self,
        client_id: str,
        partition: Partition,
        fields_to_read: Sequence[str] | None = None,
    ) -> PartitionLevelConsumer:
        return KafkaConsumer(self.config, client_id, partition)

    def create_metadata_provider(self, client_id: str) -> MetadataProvider:
        return KafkaMetadata(self.config, client_id)

    def create_stream_level_consumer(
        self, client_id: str, group_id: str
    ) -> StreamLevelConsumer:
        from streamfactory.backends.kafka.groups import KafkaGroupMember

        return KafkaGroupMember(self.config, client_id, group_id)
