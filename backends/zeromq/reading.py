"""Consumer factory of ``zeromq``."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, ClassVar, Final

import pyarrow as pa

from streamfactory.arrowlog.messages import envelopes, message_schema
from streamfactory.backends.zeromq.options import DEALER_ROUTER, Settings
from streamfactory.backends.zeromq.receiving import PartitionReader
from streamfactory.backends.zeromq.transport import SocketContext
from streamfactory.spi import (
    BatchState,
    Claims,
    ClosedError,
    ConsumerFactory,
    Fetched,
    FetchLimits,
    MetadataProvider,
    Partition,
    PartitionInfo,
    PartitionLevelConsumer,
    PartitionState,
    SchemaUnknown,
    StreamConfig,
    StreamTimeout,
    TopicNotFound,
    envelope_schema,
)
from streamfactory.spi.soundness.senders import SharedSchema
from streamfactory.spi.waking import Wake

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from streamfactory.backends.zeromq.joining import Taken
    from streamfactory.spi import Position

_GLANCE: Final = 0.05
"""Seconds between polls for a schema."""
_WAIT: Final = 0.2
"""Seconds of one call for a schema that no sender has sent yet."""


class PartitionReaders:
    """The readers of all partitions of a stream in one process; opened lazily."""

    def __init__(self, config: StreamConfig, settings: Settings) -> None:
        is_packed = settings.is_raw and not settings.is_plain
        self.holder = SharedSchema(message_schema() if is_packed else None)
        self.is_closed = False
        self._config = config
        self._settings = settings
        self._lock = threading.Lock()
        self._place: SocketContext | None = None
        self.each = [
            PartitionReader(
                Partition(config.topic, number),
                self._found_place,
                endpoints,
                config,
                settings,
                self.holder,
            )
            for number, endpoints in enumerate(settings.endpoints)
        ]

    def close(self) -> None:
        """Close all sockets, and their context."""
        self.is_closed = True
        for reader in self.each:
            reader.close()
        with self._lock:
            if self._place is not None:
                self._place.close()
                self._place = None

    def _found_place(self) -> SocketContext:
        with self._lock:
            if self._place is None:
                self._place = SocketContext(self._config, self._settings)
            return self._place


class ZeromqConsumer(PartitionLevelConsumer):
    """Reads one partition. Its socket is opened by the first fetch."""

    def __init__(
        self,
        readers: PartitionReaders,
        settings: Settings,
        partition: Partition,
        fields: Sequence[str] | None,
    ) -> None:
        self._readers = readers
        self._reader = readers.each[partition.id]
        self._partition = partition
        self._is_packed = settings.is_raw and not settings.is_plain
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
        taken = reader.take(reported, start, most, limits.timeout, self._wake)
        if taken is not None:
            return self._fetched(taken, start)
        if reader.incarnation != reported:
            # A new incarnation is reported by a batch without rows.
            self._reported = reader.incarnation
            where = start if reported is None else reader.next
            return Fetched(None, where, incarnation=reader.incarnation)
        state = None if reader.end is None else BatchState.END_OF_PARTITION
        return Fetched(None, start, state=state, incarnation=reported, end=reader.end)

    def wake(self) -> None:
        self._wake.set()

    def close(self) -> None:
        self._wake.close()

    def _fetched(self, taken: Taken, start: int) -> Fetched:
        rows, first = taken.rows, taken.first
        size = taken.size
        if rows is not None and first < start:
            rows = rows.slice(min(start - first, rows.num_rows))
            first = start
        if rows is None or not rows.num_rows:
            return Fetched(
                None,
                max(start, taken.next),
                incarnation=self._reported,
                losses=taken.losses,
                held_from=start,
            )
        if self._is_packed:
            rows = envelopes(rows, self._partition, first)
        if self._fields is not None:
            rows = rows.select(self._fields)
        return Fetched(
            rows,
            first + rows.num_rows,
            offsets=None if first == start else pa.arange(first, first + rows.num_rows),
            incarnation=self._reported,
            size=size,
            losses=taken.losses,
            # Missing rows before these are in `losses`.
            held_from=start,
        )


class ZeromqMetadata(MetadataProvider):
    """Metadata known from the sockets of this process."""

    def __init__(self, factory: ZeromqConsumerFactory) -> None:
        self._factory = factory

    def fetch_partitions(
        self, topics: Sequence[str], known: Collection[Partition]
    ) -> Sequence[PartitionInfo]:
        return [
            PartitionInfo(
                Partition(topic, number),
                reader.earliest,
                None,
                PartitionState.ACTIVE if reader.end is None else PartitionState.ENDED,
                reader.incarnation,
            )
            for topic in topics
            for number, reader in enumerate(self._factory.readers.each)
        ]

    def fetch_schema(self, topic: str) -> pa.Schema:
        """The schema of the first sender, unless one is declared."""
        factory = self._factory
        if factory.settings.is_raw:
            return envelope_schema()
        if "schema" in factory.config:
            msg = "a schema is declared"
            raise SchemaUnknown(msg)
        readers = factory.readers
        deadline = time.monotonic() + _WAIT
        while readers.holder.schema is None:
            for reader in readers.each:
                reader.look(_GLANCE / len(readers.each))
            if readers.is_closed:
                msg = "the stream is closed"
                raise ClosedError(msg)
            if time.monotonic() > deadline:
                msg = "no sender has sent a schema"
                remedy = "start the sender, or declare the option `schema`"
                raise StreamTimeout(msg, remedy=remedy)
        return readers.holder.schema


class ZeromqConsumerFactory(ConsumerFactory):
    """Reads the senders at some endpoints.

    ZeroMQ stores nothing. With dealer-router, senders keep unacknowledged rows.
    """

    CLAIMS: ClassVar = Claims(redelivers=True)

    def __init__(self, config: StreamConfig) -> None:
        super().__init__(config)
        self.settings = Settings.of(config)
        # By process id: inherited sockets are kept open, but not used after a fork.
        self._readers: dict[int, PartitionReaders] = {}

    @property
    def readers(self) -> PartitionReaders:
        """The partition readers of this process. Opens nothing."""
        process = os.getpid()
        if process not in self._readers:
            # If two threads race, one object is dropped, which has opened nothing.
            self._readers.setdefault(
                process, PartitionReaders(self.config, self.settings)
            )
        return self._readers[process]

    def create_partition_level_consumer(
        self,
        client_id: str,
        partition: Partition,
        fields_to_read: Sequence[str] | None = None,
    ) -> PartitionLevelConsumer:
        if partition.id >= len(self.settings.endpoints):
            msg = f"the stream has {len(self.settings.endpoints)} partitions"
            raise TopicNotFound(msg, partition=partition)
        return ZeromqConsumer(self.readers, self.settings, partition, fields_to_read)

    def create_metadata_provider(self, client_id: str) -> MetadataProvider:
        return ZeromqMetadata(self)

    def acknowledge(self, position: Position) -> None:
        if self.config.get("acknowledge") != "stored":
            return
        readers = self.readers
        for partition, offset in position.items():
            if partition.topic == self.config.topic and partition.id < len(
                readers.each
            ):
                incarnation = position.incarnations.get(partition)
                readers.each[partition.id].acknowledge(incarnation, offset)

    def claims(self) -> Claims:
        is_kept = self.settings.pattern == DEALER_ROUTER
        stored = self.config.get("acknowledge") == "stored"
        return Claims(redelivers=is_kept and stored and self.config["senders"] == 1)

    def close(self) -> None:
        readers = self._readers.get(os.getpid())
        if readers is not None:
            readers.close()
