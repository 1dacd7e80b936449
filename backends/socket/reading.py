"""The reading half of ``socket``."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, ClassVar, Final

import pyarrow as pa

from streamfactory.backends.socket.connections import Port
from streamfactory.backends.socket.headers import Limits
from streamfactory.backends.socket.merging import Lane, Taken
from streamfactory.backends.socket.options import DURABLE_WAY, Settings
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
"""Seconds between looks for a schema."""


class Lanes:
    """All partitions of a stream, as one process reads them."""

    def __init__(self, config: StreamConfig, settings: Settings) -> None:
        limits = Limits(
            config["max.metadata.bytes"],
            config["max.message.bytes"],
            config["max.dictionary.bytes"],
        )
        self.holder = SharedSchema()
        self.is_closed = False
        self.each = [
            Lane(
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
        for lane in self.each:
            lane.close()


class SocketConsumer(PartitionLevelConsumer):
    """Reads one partition. Connects when it is first asked."""

    def __init__(
        self, lanes: Lanes, partition: Partition, fields: Sequence[str] | None
    ) -> None:
        self._lanes = lanes
        self._lane = lanes.each[partition.id]
        self._partition = partition
        self._fields = None if fields is None else list(fields)
        self._told: str | None = None
        self._wake = Wake()

    def fetch_messages(
        self, start: int, end: int | None, limits: FetchLimits
    ) -> Fetched:
        if self._lanes.is_closed:
            msg = "the stream is closed"
            raise ClosedError(msg)
        lane, told = self._lane, self._told
        most = limits.max_rows if end is None else min(limits.max_rows, end - start)
        if lane.incarnation == told and start < lane.next:
            raise self._gone(start)
        taken = lane.take(told, most, limits.timeout, self._wake)
        if taken is not None:
            return self._answer(taken, start)
        if lane.incarnation != told:
            # Offsets count something else from here on: that is told without rows.
            self._told = lane.incarnation
            return Fetched(
                None,
                start if told is None else lane.next,
                incarnation=lane.incarnation,
            )
        end_of_all = lane.end
        if end_of_all is not None:
            lane.retire()  # whoever comes now would not be read
        state = None if end_of_all is None else BatchState.END_OF_PARTITION
        return Fetched(None, start, state=state, incarnation=told, end=end_of_all)

    def wake(self) -> None:
        self._wake.set()

    def close(self) -> None:
        self._wake.close()

    def _answer(self, taken: Taken, start: int) -> Fetched:
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
            incarnation=self._told,
            size=taken.size,
        )

    def _gone(self, start: int) -> OffsetOutOfRange:
        msg = f"offset {start} was read already and cannot be read again"
        return OffsetOutOfRange(
            msg,
            earliest=self._lane.next,
            partition=self._partition,
            offset=start,
            remedy=DURABLE_WAY,
        )


class SocketMetadata(MetadataProvider):
    """Answers what the connections of this process have shown; makes none for it."""

    def __init__(self, factory: SocketConsumerFactory) -> None:
        self._factory = factory

    def fetch_partitions(
        self, topics: Sequence[str], known: Collection[Partition]
    ) -> Sequence[PartitionInfo]:
        return [
            PartitionInfo(
                Partition(topic, number),
                lane.next,
                None,
                PartitionState.ENDED if lane.has_ended else PartitionState.ACTIVE,
                lane.incarnation,
            )
            for topic in topics
            for number, lane in enumerate(self._factory.lanes.each)
        ]

    def fetch_schema(self, topic: str) -> pa.Schema:
        """The schema of the first writer; where one is declared, nobody is asked."""
        if "schema" in self._factory.config:
            msg = "a schema is declared"
            raise SchemaUnknown(msg)
        lanes, timeout = self._factory.lanes, self._factory.settings.timeout
        deadline = time.monotonic() + timeout
        while lanes.holder.schema is None:
            for lane in lanes.each:
                lane.look(_GLANCE / len(lanes.each))
            self._check(lanes)
            if time.monotonic() > deadline:
                msg = f"no writer has sent a schema within {timeout:g} s"
                remedy = "start the writer, or declare the option `schema`"
                raise StreamTimeout(msg, remedy=remedy)
        return lanes.holder.schema

    def _check(self, lanes: Lanes) -> None:
        """Give up where no schema will come.

        Raises:
            ClosedError: misuse.
            SchemaUnknown: config; all writers have ended without one.
        """
        if lanes.is_closed:
            msg = "the stream is closed"
            raise ClosedError(msg)
        if lanes.holder.schema is None and all(lane.has_ended for lane in lanes.each):
            ends = [lane.end for lane in lanes.each]
            msg = f"every writer ended before its schema came ({ends[0]})"
            raise SchemaUnknown(msg)


class SocketConsumerFactory(ConsumerFactory):
    """Reads the writers of some addresses. What is read is gone: it claims nothing."""

    CLAIMS: ClassVar = Claims()

    def __init__(self, config: StreamConfig) -> None:
        super().__init__(config)
        self.settings = Settings.of(config)
        # By process: what a fork inherited stays referenced, and untouched.
        self._lanes: dict[int, Lanes] = {}

    @property
    def lanes(self) -> Lanes:
        """The partitions, as this process reads them. Opens nothing."""
        process = os.getpid()
        if process not in self._lanes:
            # Of two threads one wins, and nothing of the other was opened.
            made = Lanes(self.config, self.settings)
            self._lanes.setdefault(process, made)
        return self._lanes[process]

    def create_partition_level_consumer(
        self,
        client_id: str,
        partition: Partition,
        fields_to_read: Sequence[str] | None = None,
    ) -> PartitionLevelConsumer:
        if partition.id >= len(self.settings.addresses):
            msg = f"there are {len(self.settings.addresses)} addresses"
            raise TopicNotFound(msg, partition=partition)
        return SocketConsumer(self.lanes, partition, fields_to_read)

    def create_metadata_provider(self, client_id: str) -> MetadataProvider:
        return SocketMetadata(self)

    def close(self) -> None:
        lanes = self._lanes.get(os.getpid())
        if lanes is not None:
            lanes.close()
