"""The reading half of ``push``."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from streamfactory.arrowlog.messages import envelopes
from streamfactory.push import named
from streamfactory.spi import (
    BatchState,
    Claims,
    ConsumerFactory,
    Failed,
    Fetched,
    FetchLimits,
    Finished,
    MetadataProvider,
    OffsetOutOfRange,
    Partition,
    PartitionInfo,
    PartitionLevelConsumer,
    PartitionState,
    ProducerFailed,
    TopicNotFound,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import pyarrow as pa

    from streamfactory.spi import StreamConfig


class PushConsumer(PartitionLevelConsumer):
    """Reads one lane; rows that were read are not kept."""

    def __init__(
        self,
        factory: PushConsumerFactory,
        table: named.NamedTable,
        partition: Partition,
        fields_to_read: Sequence[str] | None,
    ) -> None:
        self._factory = factory
        self._table = table
        self._partition = partition
        self._fields = None if fields_to_read is None else list(fields_to_read)
        self._woken = False

    def fetch_messages(
        self, start: int, end: int | None, limits: FetchLimits
    ) -> Fetched:
        lane = self._table.channel.lanes[self._partition.id]
        first = lane.rows_read
        if start < first:
            msg = f"offset {start} was read already and cannot be read again"
            raise OffsetOutOfRange(
                msg,
                earliest=first,
                partition=self._partition,
                offset=start,
                remedy="give the stream a spool, or copy it into a durable stream",
            )
        # Rows before a later start are passed over: at most so many at a time.
        before = start - first
        most = before or limits.max_rows
        if end is not None and not before:
            most = min(most, end - start)
        try:
            found = self._table.channel.take(
                self._partition.id,
                most,
                limits.timeout,
                self._factory,
                self._is_woken,
            )
        except ProducerFailed as error:
            return self._ended(start, Failed(error.what))
        if isinstance(found, Finished):
            return self._ended(start, found)
        if found is None or before:
            return Fetched(None, start, incarnation=self._table.incarnation)
        if self._table.has_messages:
            found = envelopes(found, self._partition, start)
        elif self._fields is not None:
            found = found.select(self._fields)
        return Fetched(
            found,
            start + found.num_rows,
            held_from=start,
            incarnation=self._table.incarnation,
        )

    def wake(self) -> None:
        self._woken = True
        self._table.channel.wake()

    def _is_woken(self) -> bool:
        return self._woken

    def _ended(self, start: int, end: Finished | Failed) -> Fetched:
        return Fetched(
            None,
            start,
            state=BatchState.END_OF_PARTITION,
            incarnation=self._table.incarnation,
            end=end,
        )


class PushMetadata(MetadataProvider):
    """Lanes of the tables of this process."""

    def fetch_partitions(
        self, topics: Sequence[str], known: Collection[Partition]
    ) -> Sequence[PartitionInfo]:
        found = []
        for topic in topics:
            table = named.find(topic)
            for number, lane in enumerate(table.channel.lanes):
                has_ended = lane.closed and not lane.items
                found.append(
                    PartitionInfo(
                        Partition(topic, number),
                        lane.rows_read,
                        None,  # the end is where the sink is closed
                        PartitionState.ENDED if has_ended else PartitionState.ACTIVE,
                        table.incarnation,
                    )
                )
        return found

    def fetch_topics(self) -> Sequence[str]:
        return named.names()

    def fetch_schema(self, topic: str) -> pa.Schema:
        return named.find(topic).stream_schema


class PushConsumerFactory(ConsumerFactory):
    """Reads the table of one name, once. It claims nothing.

    Closing it before the end ends the table, as the reader of a table does.
    """

    CLAIMS: ClassVar = Claims()

    def __init__(self, config: StreamConfig) -> None:
        super().__init__(config)
        self._tables: set[named.NamedTable] = set()

    def create_partition_level_consumer(
        self,
        client_id: str,
        partition: Partition,
        fields_to_read: Sequence[str] | None = None,
    ) -> PartitionLevelConsumer:
        table = named.find(partition.topic)
        if partition.id >= len(table.channel.lanes):
            msg = f"the table has {len(table.channel.lanes)} lanes"
            raise TopicNotFound(msg, partition=partition)
        self._tables.add(table)
        return PushConsumer(self, table, partition, fields_to_read)

    def create_metadata_provider(self, client_id: str) -> MetadataProvider:
        return PushMetadata()

    def close(self) -> None:
        for table in self._tables:
            table.channel.leave(self)
