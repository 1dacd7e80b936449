"""The reading half of every backend that keeps its streams in a log."""

from __future__ import annotations

import threading
from abc import abstractmethod
from typing import TYPE_CHECKING

from streamfactory.arrowlog.messages import envelopes, message_schema
from streamfactory.arrowlog.values import StoresRows
from streamfactory.spi import (
    BatchState,
    ConsumerFactory,
    Fetched,
    FetchLimits,
    MetadataProvider,
    Partition,
    PartitionInfo,
    PartitionLevelConsumer,
    Unsupported,
    envelope_schema,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import pyarrow as pa

    from streamfactory.arrowlog.log import Log, LogStore
    from streamfactory.arrowlog.values import LogSlice, PartitionBounds, StoredRows
    from streamfactory.spi import Loss


class LogConsumer(PartitionLevelConsumer):
    """Reads one partition of a log."""

    def __init__(
        self, log: Log, partition: Partition, fields: Sequence[str] | None
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
        rows, losses = self.shape(rows, start)
        projected = self._fields is not None and not self._messages
        return Fetched(
            rows,
            start + rows.num_rows,
            latest=latest,
            held_from=found.bounds.earliest,
            incarnation=self._log.incarnation,
            # Of all columns, some of which are not returned.
            size=None if projected else found.size,
            losses=losses,
        )

    def shape(
        self, rows: pa.RecordBatch, start: int
    ) -> tuple[pa.RecordBatch, Sequence[Loss]]:
        """What readers get of stored rows, and the losses recorded among them.

        Args:
            rows: As the log has them.
            start: Offset of the first one.
        """
        if self._messages:
            rows = envelopes(rows, self._partition, start)
        elif self._fields is not None:
            rows = rows.select(self._fields)
        return rows, ()

    def wake(self) -> None:
        self._woken.set()
        self._log.wake()

    def _read(self, start: int, max_rows: int, max_bytes: int) -> LogSlice:
        return self._log.read(
            self._partition.id, start, max_rows=max_rows, max_bytes=max_bytes
        )


class LogMetadata(MetadataProvider):
    """Answers from the logs of a store."""

    def __init__(self, factory: LogConsumerFactory) -> None:
        self._factory = factory
        self._answers: dict[
            str, tuple[Sequence[PartitionBounds], list[PartitionInfo]]
        ] = {}
        """The last answer for each topic, and the bounds of which it was made: a log
        without new rows returns the same ones."""

    @property
    def _topics(self) -> LogStore:
        return self._factory.store()

    def fetch_partitions(
        self, topics: Sequence[str], known: Collection[Partition]
    ) -> Sequence[PartitionInfo]:
        return [info for topic in topics for info in self._infos(topic)]

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

    def _infos(self, topic: str) -> list[PartitionInfo]:
        log = self._topics.open(topic)
        bounds = log.bounds()
        before, infos = self._answers.get(topic, (None, []))
        if before is not bounds:
            incarnation = log.incarnation
            infos = [
                PartitionInfo(
                    Partition(topic, partition.id),
                    partition.earliest,
                    partition.latest,
                    incarnation=incarnation,
                )
                for partition in bounds
            ]
            self._answers[topic] = bounds, infos
        return infos


class LogConsumerFactory(ConsumerFactory, StoresRows):
    """Reads the topics of one store."""

    @abstractmethod
    def store(self) -> LogStore:
        """The store of this configuration, in this process."""

    def stored(self, topic: str) -> StoredRows:
        """See `StoresRows`."""
        log = self.store().open(topic)
        if log.schema.equals(message_schema()):
            msg = f"topic {topic!r} has undecoded messages, which need a decoder"
            raise Unsupported(msg)
        return log

    def create_partition_level_consumer(
        self,
        client_id: str,
        partition: Partition,
        fields_to_read: Sequence[str] | None = None,
    ) -> PartitionLevelConsumer:
        return LogConsumer(
            self.store().open(partition.topic), partition, fields_to_read
        )

    def create_metadata_provider(self, client_id: str) -> MetadataProvider:
        return LogMetadata(self)
