"""Consumer factory of ``flight``."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from streamfactory.arrowlog import message_schema
from streamfactory.arrowlog.messages import envelopes
from streamfactory.backends.flight.client.checkpoints import RemoteCheckpointStore
from streamfactory.backends.flight.client.subscription import Subscription
from streamfactory.backends.flight.options import PLAIN
from streamfactory.backends.flight.plain.endpoints import Endpoints
from streamfactory.backends.flight.plain.reading import PlainConsumer, PlainMetadata
from streamfactory.backends.flight.protocol import messages as m
from streamfactory.backends.flight.protocol.schemas import decode_schema
from streamfactory.backends.flight.servers import CLAIMS, connect
from streamfactory.spi import (
    BatchState,
    Claims,
    ConsumerFactory,
    Fetched,
    FetchLimits,
    MetadataProvider,
    Partition,
    PartitionInfo,
    PartitionLevelConsumer,
    envelope_schema,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import pyarrow as pa

    from streamfactory.backends.flight.client.connection import Connection
    from streamfactory.spi import CheckpointStore, StreamConfig


class FlightConsumer(PartitionLevelConsumer):
    """Reads one partition of a topic on the server."""

    def __init__(
        self,
        connection: Connection,
        partition: Partition,
        fields: Sequence[str] | None,
    ) -> None:
        self._partition = partition
        topic = connection.call(
            "describe", m.Topic(partition.topic), m.TopicDescription
        )
        self._incarnation = topic.incarnation
        schema = decode_schema(topic.schema or "")
        self._messages = schema.equals(message_schema())
        wanted = None if fields is None or self._messages else tuple(fields)
        self._subscription = Subscription(
            connection,
            m.Subscribe(partition.topic, partition.id, wanted, topic.incarnation),
        )

    def fetch_messages(
        self, start: int, end: int | None, limits: FetchLimits
    ) -> Fetched:
        rows, place = self._subscription.fetch(start, end, limits)
        if not rows.num_rows:
            return Fetched(
                None,
                start,
                state=BatchState.CAUGHT_UP,
                latest=place.latest,
                incarnation=self._incarnation,
            )
        if self._messages:
            rows = envelopes(rows, self._partition, start)
        return Fetched(
            rows,
            start + rows.num_rows,
            latest=place.latest,
            held_from=place.earliest,
            incarnation=self._incarnation,
            size=rows.nbytes,
        )

    def close(self) -> None:
        self._subscription.close()


class FlightMetadata(MetadataProvider):
    """Metadata from the server: one call for all topics and partitions."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def fetch_partitions(
        self, topics: Sequence[str], known: Collection[Partition]
    ) -> Sequence[PartitionInfo]:
        found = self._connection.call(
            "partitions", m.Topics(tuple(topics)), m.Descriptions
        )
        return [
            PartitionInfo(
                Partition(topic.topic, partition.id),
                partition.earliest,
                partition.latest,
                incarnation=topic.incarnation,
            )
            for topic in found.topics
            for partition in topic.partitions
        ]

    def fetch_offsets_at(
        self, timestamp_ms: int, partitions: Collection[Partition]
    ) -> Mapping[Partition, int | None]:
        wanted: dict[str, tuple[int, ...]] = {}
        for partition in partitions:
            ids = wanted.get(partition.topic, ())
            wanted[partition.topic] = (*ids, partition.id)
        found = self._connection.call(
            "offsets-at", m.OffsetsAt(timestamp_ms, wanted), m.Offsets
        )
        return {p: found.offsets[p.topic][p.id] for p in partitions}

    def fetch_schema(self, topic: str) -> pa.Schema:
        found = self._connection.call("describe", m.Topic(topic), m.TopicDescription)
        schema = decode_schema(found.schema or "")
        return envelope_schema() if schema.equals(message_schema()) else schema

    def fetch_topics(self) -> Sequence[str]:
        return self._connection.call("topics", m.Done(), m.Names).names


class FlightConsumerFactory(ConsumerFactory):
    """Reads the topics of one server."""

    CLAIMS: ClassVar = CLAIMS
    SURVIVES_FORK: ClassVar = False

    def __init__(self, config: StreamConfig) -> None:
        super().__init__(config)
        self._connection = connect(config)
        self._endpoints = Endpoints(self._connection, config)

    def create_partition_level_consumer(
        self,
        client_id: str,
        partition: Partition,
        fields_to_read: Sequence[str] | None = None,
    ) -> PartitionLevelConsumer:
        if self.config["protocol"] == PLAIN:
            return PlainConsumer(self._endpoints, partition)
        return FlightConsumer(self._connection, partition, fields_to_read)

    def create_metadata_provider(self, client_id: str) -> MetadataProvider:
        if self.config["protocol"] == PLAIN:
            return PlainMetadata(self._endpoints)
        return FlightMetadata(self._connection)

    def create_checkpoint_store(self) -> CheckpointStore | None:
        if self.config["protocol"] == PLAIN:
            return None
        return RemoteCheckpointStore(self._connection)

    def claims(self) -> Claims:
        if self.config["protocol"] == PLAIN:
            repeats = bool(self.config["plain.deterministic"])
            return Claims(replayable=repeats, durable=repeats, shared=repeats)
        return CLAIMS

    def close(self) -> None:
        self._connection.close()
