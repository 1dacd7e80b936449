"""Consumers, metadata and factory of a live transport, over a backend's partitions."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import pyarrow as pa

from streamfactory.live.processes import PerProcess
from streamfactory.spi import (
    BatchState,
    ClosedError,
    ConsumerFactory,
    Fetched,
    MetadataProvider,
    OffsetOutOfRange,
    Partition,
    PartitionInfo,
    PartitionLevelConsumer,
    PartitionState,
    SchemaUnknown,
    StreamError,
    StreamTimeout,
    TopicNotFound,
)
from streamfactory.spi.waking import Wake

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from streamfactory.live.schemas import SharedSchema
    from streamfactory.spi import End, FetchLimits, Loss, StreamConfig

_GLANCE: Final = 0.05
"""Seconds between polls for a schema."""
_WAIT: Final = 0.2
"""Seconds of one call for a schema that no peer has sent yet."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Rows of a partition, with their offset."""

    rows: pa.RecordBatch | None
    first: int
    next: int
    size: int
    losses: tuple[Loss, ...] | None = None
    """All losses before the rows; None if other consumers may have read rows."""


class PartitionReader(ABC):
    """Reads one partition in one process, for all of its consumers. Thread-safe."""

    @property
    @abstractmethod
    def incarnation(self) -> str | None:
        """The incarnation; None before the first peer."""

    @property
    @abstractmethod
    def next(self) -> int:
        """Offset of the next row to return."""

    @property
    def earliest(self) -> int:
        """First offset that can be read."""
        return self.next

    @property
    @abstractmethod
    def end(self) -> End | None:
        """How the partition ended; None if it has not.

        Raises:
            StreamError: A peer sent invalid data, which is not an end of the stream.
        """

    @property
    def has_ended(self) -> bool:
        """Whether the partition has ended or failed."""
        try:
            return self.end is not None
        except StreamError:
            return True

    @abstractmethod
    def take(
        self, reported: str | None, start: int, most: int, timeout: float, wake: Wake
    ) -> Taken | None:
        """The next rows; None on timeout.

        Returns None at once if the incarnation differs from the one that was reported,
        or if the partition has ended.

        Args:
            reported: The incarnation of ``start``.
            start: First wanted offset.
            most: Number of rows after which nothing is added.
            timeout: Seconds.
            wake: Ends the wait.

        Raises:
            OffsetOutOfRange: data_loss; as `already_read`.
            StreamError: A peer cannot be used, or sent invalid data.
        """

    @abstractmethod
    def look(self, seconds: float) -> None:
        """Receive schemas, but return no rows; waits while none is known."""

    def retire(self) -> None:  # noqa: B027 - an ability
        """Accept no further peers: the end of the partition was returned."""

    @abstractmethod
    def close(self) -> None:
        """Close all connections. May be called twice."""


def already_read(
    partition: Partition, start: int, earliest: int, why: str, remedy: str
) -> OffsetOutOfRange:
    """The error for rows that were returned before.

    Args:
        partition: The partition.
        start: The wanted offset.
        earliest: The first offset that can be read.
        why: Why they cannot be read again.
        remedy: How to make rows durable.
    """
    msg = f"offset {start} was read already{why}"
    return OffsetOutOfRange(
        msg, earliest=earliest, partition=partition, offset=start, remedy=remedy
    )


class PartitionReaders:
    """The readers of all partitions of a stream in one process. Opens nothing.

    Args:
        each: By partition.
        holder: The schema, shared by all partitions.
        close: Closes what the readers share, after them.
    """

    def __init__(
        self,
        each: Sequence[PartitionReader],
        holder: SharedSchema,
        close: Callable[[], object] = bool,
    ) -> None:
        self.each = each
        self.holder = holder
        self._close = close
        self._is_closed = False

    def check_open(self) -> None:
        """Raise if the stream is closed.

        Raises:
            ClosedError: misuse.
        """
        if self._is_closed:
            msg = "the stream is closed"
            raise ClosedError(msg)

    def schema(self) -> pa.Schema:
        """The schema of the first peer; waits for a moment.

        Raises:
            ClosedError: misuse.
            SchemaUnknown: config; all peers have ended without a schema.
            StreamTimeout: transient; none was received yet.
        """
        deadline = time.monotonic() + _WAIT
        while (schema := self.holder.schema) is None:
            for reader in self.each:
                reader.look(_GLANCE / len(self.each))
            self.check_open()
            self._check_awaited(deadline)
        return schema

    def close(self) -> None:
        """Close all of them, for every thread."""
        self._is_closed = True
        for reader in self.each:
            reader.close()
        self._close()

    def _check_awaited(self, deadline: float) -> None:
        """Raise if no schema can be received, or if the wait is over."""
        if self.holder.schema is not None:
            return
        if all(reader.has_ended for reader in self.each):
            msg = f"every writer ended before it sent a schema ({self.each[0].end})"
            raise SchemaUnknown(msg)
        if time.monotonic() > deadline:
            msg = "no writer has sent a schema"
            remedy = "start the writer, or declare the option `schema`"
            raise StreamTimeout(msg, remedy=remedy)


@final
class LiveConsumer(PartitionLevelConsumer):
    """Reads one partition. Connects at the first fetch.

    Args:
        readers: The readers of the process.
        partition: The partition to read.
        fields: Columns to return; None means all.
        shape: See `LiveConsumerFactory.shape`.
    """

    def __init__(
        self,
        readers: PartitionReaders,
        partition: Partition,
        fields: Sequence[str] | None,
        shape: Callable[[pa.RecordBatch, Partition, int], pa.RecordBatch],
    ) -> None:
        self._readers = readers
        self._reader = readers.each[partition.id]
        self._partition = partition
        self._fields = None if fields is None else list(fields)
        self._shape = shape
        self._reported: str | None = None
        self._wake = Wake()

    def fetch_messages(
        self, start: int, end: int | None, limits: FetchLimits
    ) -> Fetched:
        self._readers.check_open()
        reader, reported = self._reader, self._reported
        most = limits.max_rows if end is None else min(limits.max_rows, end - start)
        taken = reader.take(reported, start, most, limits.timeout, self._wake)
        if taken is not None:
            return self._fetched(taken, start)
        if reader.incarnation != reported:
            # A new incarnation is reported by a batch without rows.
            self._reported = reader.incarnation
            where = start if reported is None else reader.next
            return Fetched(None, where, incarnation=reader.incarnation)
        end_of_all = reader.end
        if end_of_all is not None:
            reader.retire()  # later connections would not be read
        state = None if end_of_all is None else BatchState.END_OF_PARTITION
        return Fetched(None, start, state=state, incarnation=reported, end=end_of_all)

    def wake(self) -> None:
        self._wake.set()

    def close(self) -> None:
        self._wake.close()

    def _fetched(self, taken: Taken, start: int) -> Fetched:
        rows, first = taken.rows, taken.first
        if rows is not None and first < start:
            rows = rows.slice(min(start - first, rows.num_rows))
            first = start
        count = 0 if rows is None else rows.num_rows
        behind, offsets = max(start, taken.next), None
        if rows is not None and count:
            behind = first + count
            if first != start:
                offsets = pa.arange(first, behind)
            rows = self._shape(rows, self._partition, first)
            if self._fields is not None:
                rows = rows.select(self._fields)
        return Fetched(
            rows if count else None,
            behind,
            offsets=offsets,
            incarnation=self._reported,
            size=taken.size,
            losses=taken.losses or (),
            held_from=None if taken.losses is None else start,
        )


@final
class LiveMetadata(MetadataProvider):
    """Metadata known from the connections of this process. Opens none for it."""

    def __init__(self, factory: LiveConsumerFactory) -> None:
        self._factory = factory

    def fetch_partitions(
        self, topics: Sequence[str], known: Collection[Partition]
    ) -> Sequence[PartitionInfo]:
        return [
            PartitionInfo(
                Partition(topic, number),
                reader.earliest,
                None,
                PartitionState.ENDED if reader.has_ended else PartitionState.ACTIVE,
                reader.incarnation,
            )
            for topic in topics
            for number, reader in enumerate(self._factory.readers.each)
        ]

    def fetch_schema(self, topic: str) -> pa.Schema:
        """The schema of the first peer, unless one is declared."""
        fixed = self._factory.fixed_schema()
        if fixed is not None:
            return fixed
        if "schema" in self._factory.config:
            msg = "a schema is declared"
            raise SchemaUnknown(msg)
        return self._factory.readers.schema()


class LiveConsumerFactory(ConsumerFactory):
    """Reads the partitions of a live transport. A backend's subclass makes readers."""

    def __init__(self, config: StreamConfig) -> None:
        super().__init__(config)
        self._readers = PerProcess(self.make_readers)

    @abstractmethod
    def make_readers(self) -> PartitionReaders:
        """Create the readers of a process. Opens nothing."""

    def fixed_schema(self) -> pa.Schema | None:
        """The schema of every stream of this configuration; None if peers decide it."""
        return None

    def shape(
        self, rows: pa.RecordBatch, partition: Partition, first: int
    ) -> pa.RecordBatch:
        """Rows of the stream, from received rows and the offset of the first one."""
        return rows

    @property
    def readers(self) -> PartitionReaders:
        """The partition readers of this process."""
        return self._readers.get()

    def create_partition_level_consumer(
        self,
        client_id: str,
        partition: Partition,
        fields_to_read: Sequence[str] | None = None,
    ) -> PartitionLevelConsumer:
        count = len(self.readers.each)
        if partition.id >= count:
            msg = f"the stream has only {count} partitions, one per address"
            raise TopicNotFound(msg, partition=partition)
        return LiveConsumer(self.readers, partition, fields_to_read, self.shape)

    def create_metadata_provider(self, client_id: str) -> MetadataProvider:
        return LiveMetadata(self)

    def close(self) -> None:
        readers = self._readers.existing()
        if readers is not None:
            readers.close()
