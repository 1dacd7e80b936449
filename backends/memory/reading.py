"""The reading half of ``memory``."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from streamfactory.backends.memory.stores import CLAIMS, message_schema, store
from streamfactory.spi import (
    BatchState,
    ConsumerFactory,
    Fetched,
    FetchLimits,
    MetadataProvider,
    Partition,
    PartitionInfo,
    PartitionLevelConsumer,
    envelope_schema,
)
from streamfactory.spi.envelope import TIMESTAMP_CREATED, TIMESTAMP_UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from streamfactory.arrowlog import LogSlice, MemoryLog, MemoryLogStore


class MemoryConsumer(PartitionLevelConsumer):
    """Reads one lane."""

    def __init__(
        self, log: MemoryLog, partition: Partition, fields: Sequence[str] | None
    ) -> None:
        self._log = log
        self._partition = partition
        self._fields = None if fields is None else list(fields)
        self._messages = log.schema.equals(message_schema())
        self._woken = threading.Event()

    def fetch_messages(
        self, start: int, end: int | None, limits: FetchLimits
    ) -> Fetched:
        most = limits.max_rows if end is None else min(limits.max_rows, end - start)
        number = self._partition.id
        found = self._read(start, most, limits.max_bytes)
        if found.rows is None and not self._woken.is_set():
            self._log.wait(number, start, limits.timeout, self._woken)
            found = self._read(start, most, limits.max_bytes)
        rows, latest = found.rows, found.bounds.latest
        if rows is None:
            return Fetched(
                None,
                start,
                state=BatchState.CAUGHT_UP,
                latest=latest,
                incarnation=self._log.incarnation,
            )
        if self._messages:
            rows = _envelopes(rows, self._partition, start)
        elif self._fields is not None:
            rows = rows.select(self._fields)
        return Fetched(
            rows,
            start + rows.num_rows,
            latest=latest,
            held_from=found.bounds.earliest,
            incarnation=self._log.incarnation,
            size=found.size,
        )

    def wake(self) -> None:
        self._woken.set()
        self._log.wake()

    def _read(self, start: int, max_rows: int, max_bytes: int) -> LogSlice:
        return self._log.read(
            self._partition.id, start, max_rows=max_rows, max_bytes=max_bytes
        )


class MemoryMetadata(MetadataProvider):
    """Answers from the store."""

    def __init__(self, store_name: str) -> None:
        self._store = store_name

    @property
    def _topics(self) -> MemoryLogStore:
        return store(self._store)

    def fetch_partitions(
        self, topics: Sequence[str], known: Collection[Partition]
    ) -> Sequence[PartitionInfo]:
        infos = []
        for topic in topics:
            log = self._topics.open(topic)
            infos += [
                PartitionInfo(
                    Partition(topic, lane.id),
                    lane.earliest,
                    lane.latest,
                    incarnation=log.incarnation,
                )
                for lane in log.bounds()
            ]
        return infos

    def fetch_offsets_at(
        self, timestamp_ms: int, partitions: Collection[Partition]
    ) -> Mapping[Partition, int | None]:
        found: dict[Partition, int | None] = {}
        for topic in {partition.topic for partition in partitions}:
            ids = [p.id for p in partitions if p.topic == topic]
            offsets = self._topics.open(topic).offsets_at(timestamp_ms, ids)
            found |= {Partition(topic, i): offset for i, offset in offsets.items()}
        return found

    def fetch_schema(self, topic: str) -> pa.Schema:
        schema = self._topics.open(topic).schema
        return envelope_schema() if schema.equals(message_schema()) else schema

    def fetch_topics(self) -> Sequence[str]:
        return self._topics.names()


class MemoryConsumerFactory(ConsumerFactory):
    """Reads the topics of one store."""

    CLAIMS: ClassVar = CLAIMS

    def create_partition_level_consumer(
        self,
        client_id: str,
        partition: Partition,
        fields_to_read: Sequence[str] | None = None,
    ) -> PartitionLevelConsumer:
        topics = store(self.config["store"])
        return MemoryConsumer(topics.open(partition.topic), partition, fields_to_read)

    def create_metadata_provider(self, client_id: str) -> MetadataProvider:
        return MemoryMetadata(self.config["store"])


def _envelopes(
    rows: pa.RecordBatch, partition: Partition, start: int
) -> pa.RecordBatch:
    count = rows.num_rows
    timestamp = rows.column("timestamp")
    created, unknown = (
        pa.scalar(kind, pa.int32()) for kind in (TIMESTAMP_CREATED, TIMESTAMP_UNKNOWN)
    )
    columns = {
        "key": rows.column("key"),
        "value": rows.column("value"),
        "topic": pa.repeat(pa.scalar(partition.topic, pa.string()), count),
        "partition": pa.repeat(pa.scalar(partition.id, pa.int32()), count),
        "offset": pa.arange(start, start + count),
        "timestamp": timestamp,
        "timestampType": pc.if_else(timestamp.is_valid(), created, unknown),
        "headers": rows.column("headers"),
    }
    return pa.RecordBatch.from_pydict(columns, schema=envelope_schema())
