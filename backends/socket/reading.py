"""Consumer factory of ``socket``."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, ClassVar, Final

import pyarrow as pa

from streamfactory.backends.socket.headers import Limits
from streamfactory.backends.socket.merging import PartitionReader, Taken
from streamfactory.backends.socket.options import DURABLE_WAY, Settings
from streamfactory.backends.socket.ports import Port
from streamfactory.spi import (
    BatchState,
    Claims,
    ClosedError,
    ConsumerFactory,
    Fetched,
    FetchLimits,
    MetadataProvider,
    OffsetOutOfRange,
    Partition,
    PartitionInfo,
    PartitionLevelConsumer,
    PartitionState,
    SchemaUnknown,
    StreamConfig,
    StreamTimeout,
    TopicNotFound,
)
from streamfactory.spi.soundness.senders import SharedSchema
from streamfactory.spi.waking import Wake

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

_GLANCE: Final = 0.05
"""Seconds between polls for a schema."""
_WAIT: Final = 0.2
"""Seconds of one call for a schema that no writer has sent yet."""


class PartitionReaders:
    """The readers of all partitions of a stream in one process."""

    def __init__(self, config: StreamConfig, settings: Settings) -> None:
        limits = Limits(
            config["max.metadata.bytes"],
            config["max.message.bytes"],
            config["max.dictionary.bytes"],
        )
        self.holder = SharedSchema()
        self.is_closed = False
        self.each = [
            PartitionReader(
                Port(address, settings, config),
                settings,
                limits,
                config["writers"],
                self.holder,
            )
            for address in settings.addresses
        ]

    def close(self) -> None:
        self.is_closed = True
        for reader in self.each:
            reader.close()


class SocketConsumer(PartitionLevelConsumer):
    """Reads one partition. Connects at the first fetch."""

    def __init__(
        self,
        readers: PartitionReaders,
        partition: Partition,
        fields: Sequence[str] | None,
    ) -> None:
        self._readers = readers
        self._reader = readers.each[partition.id]
        self._partition = partition
        self._fields = None if fields is None else list(fields)
        self._reported: str | None = None
        self._wake = Wake()

    def fetch_messages(
        self, start: int, end: int | None, limits: FetchLimits
    ) -> Fetched:
        if self._readers.is_closed:
            msg = "the stream is closed"
            raise ClosedError(msg)
        reader, reported = self._reader, self._reported
        most = limits.max_rows if end is None else min(limits.max_rows, end - start)
        if reader.incarnation == reported and start < reader.next:
            raise self._already_read(start)
        taken = reader.take(reported, most, limits.timeout, self._wake)
        if taken is not None:
            return self._fetched(taken, start)
        if reader.incarnation != reported:
            # A new incarnation is reported by a batch without rows.
            self._reported = reader.incarnation
            return Fetched(
                None,
                start if reported is None else reader.next,
                incarnation=reader.incarnation,
            )
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
        if self._fields is not None:
            rows = rows.select(self._fields)
        if first < start:
            rows = rows.slice(min(start - first, rows.num_rows))
            first = start
        offsets = None
        if first != start:
            offsets = pa.arange(first, first + rows.num_rows)
        return Fetched(
            rows if rows.num_rows else None,
            max(start, first + rows.num_rows),
            offsets=offsets if rows.num_rows else None,
            incarnation=self._reported,
            size=taken.size,
        )

    def _already_read(self, start: int) -> OffsetOutOfRange:
        msg = f"offset {start} was read already and cannot be read again"
        return OffsetOutOfRange(
            msg,
            earliest=self._reader.next,
            partition=self._partition,
            offset=start,
            remedy=DURABLE_WAY,
        )


class SocketMetadata(MetadataProvider):
    """Metadata known from the connections of this process. Opens none for it."""

    def __init__(self, factory: SocketConsumerFactory) -> None:
        self._factory = factory

    def fetch_partitions(
        self, topics: Sequence[str], known: Collection[Partition]
    ) -> Sequence[PartitionInfo]:
        return [
            PartitionInfo(
                Partition(topic, number),
                reader.next,
                None,
                PartitionState.ENDED if reader.has_ended else PartitionState.ACTIVE,
                reader.incarnation,
            )
            for topic in topics
            for number, reader in enumerate(self._factory.readers.each)
        ]

    def fetch_schema(self, topic: str) -> pa.Schema:
        """The schema of the first writer, unless one is declared."""
        if "schema" in self._factory.config:
            msg = "a schema is declared"
            raise SchemaUnknown(msg)
        readers = self._factory.readers
        deadline = time.monotonic() + _WAIT
        while readers.holder.schema is None:
            for reader in readers.each:
                reader.look(_GLANCE / len(readers.each))
            self._check(readers)
            if time.monotonic() > deadline:
                msg = "no writer has sent a schema"
                remedy = "start the writer, or declare the option `schema`"
                raise StreamTimeout(msg, remedy=remedy)
        return readers.holder.schema

    def _check(self, readers: PartitionReaders) -> None:
        """Raise if no schema will be received.

        Raises:
            ClosedError: misuse.
            SchemaUnknown: config; all writers have ended without a schema.
        """
        if readers.is_closed:
            msg = "the stream is closed"
            raise ClosedError(msg)
        ended = all(reader.has_ended for reader in readers.each)
        if readers.holder.schema is None and ended:
            msg = f"every writer ended before it sent a schema ({readers.each[0].end})"
            raise SchemaUnknown(msg)


class SocketConsumerFactory(ConsumerFactory):
    """Reads from the writers of some addresses.

    No claims: rows cannot be read again.
    """

    CLAIMS: ClassVar = Claims()

    def __init__(self, config: StreamConfig) -> None:
        super().__init__(config)
        self.settings = Settings.of(config)
        # By process id: inherited connections are kept open, but not used after a fork.
        self._readers: dict[int, PartitionReaders] = {}

    @property
    def readers(self) -> PartitionReaders:
        """The partition readers of this process. Opens no connection."""
        process = os.getpid()
        if process not in self._readers:
            # If two threads race, one object is dropped, which has opened nothing.
            made = PartitionReaders(self.config, self.settings)
            self._readers.setdefault(process, made)
        return self._readers[process]

    def create_partition_level_consumer(
        self,
        client_id: str,
        partition: Partition,
        fields_to_read: Sequence[str] | None = None,
    ) -> PartitionLevelConsumer:
        if partition.id >= len(self.settings.addresses):
            msg = (
                f"the stream has only {len(self.settings.addresses)} partitions, one "
                "per address"
            )
            raise TopicNotFound(msg, partition=partition)
        return SocketConsumer(self.readers, partition, fields_to_read)

    def create_metadata_provider(self, client_id: str) -> MetadataProvider:
        return SocketMetadata(self)

    def close(self) -> None:
        readers = self._readers.get(os.getpid())
        if readers is not None:
            readers.close()
