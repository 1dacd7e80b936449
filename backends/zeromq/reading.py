"""The reading half of ``zeromq``."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, ClassVar, Final

import pyarrow as pa

from streamfactory.arrowlog.messages import envelopes, message_schema
from streamfactory.backends.zeromq.options import DEALER_ROUTER, Settings
from streamfactory.backends.zeromq.receiving import Lane
from streamfactory.backends.zeromq.transport import Place
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
"""Seconds between looks for a schema."""


class Lanes:
    """All partitions of a stream, as one process reads them; opened when used."""

    def __init__(self, config: StreamConfig, settings: Settings) -> None:
        is_packed = settings.is_raw and not settings.is_plain
        self.holder = SharedSchema(message_schema() if is_packed else None)
        self.is_closed = False
        self._config = config
        self._settings = settings
        self._lock = threading.Lock()
        self._place: Place | None = None
        self.each = [
            Lane(
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
        for lane in self.each:
            lane.close()
        with self._lock:
            if self._place is not None:
                self._place.close()
                self._place = None

    def _found_place(self) -> Place:
        with self._lock:
            if self._place is None:
                self._place = Place(self._config, self._settings)
            return self._place


class ZeromqConsumer(PartitionLevelConsumer):
    """Reads one partition. Its socket is opened by the first fetch."""

    def __init__(
        self,
        lanes: Lanes,
        settings: Settings,
        partition: Partition,
        fields: Sequence[str] | None,
    ) -> None:
        self._lanes = lanes
        self._lane = lanes.each[partition.id]
        self._partition = partition
        self._is_packed = settings.is_raw and not settings.is_plain
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
        taken = lane.take(told, start, most, limits.timeout, self._wake)
        if taken is not None:
            return self._answer(taken, start)
        if lane.incarnation != told:
            # Offsets count something else from here on: that is told without rows.
            self._told = lane.incarnation
            where = start if told is None else lane.next
            return Fetched(None, where, incarnation=lane.incarnation)
        state = None if lane.end is None else BatchState.END_OF_PARTITION
        return Fetched(None, start, state=state, incarnation=told, end=lane.end)

    def wake(self) -> None:
        self._wake.set()

    def close(self) -> None:
        self._wake.close()

    def _answer(self, taken: Taken, start: int) -> Fetched:
        rows, first = taken.rows, taken.first
        size = taken.size
        if rows is not None and first < start:
            rows = rows.slice(min(start - first, rows.num_rows))
            first = start
        if rows is None or not rows.num_rows:
            return Fetched(
                None,
                max(start, taken.next),
                incarnation=self._told,
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
            incarnation=self._told,
            size=size,
            losses=taken.losses,
            # What is missing before the rows is in `losses`.
            held_from=start,
        )


class ZeromqMetadata(MetadataProvider):
    """Answers what the sockets of this process have received."""

    def __init__(self, factory: ZeromqConsumerFactory) -> None:
        self._factory = factory

    def fetch_partitions(
        self, topics: Sequence[str], known: Collection[Partition]
    ) -> Sequence[PartitionInfo]:
        return [
            PartitionInfo(
                Partition(topic, number),
                lane.earliest,
                None,
                PartitionState.ACTIVE if lane.end is None else PartitionState.ENDED,
                lane.incarnation,
            )
            for topic in topics
            for number, lane in enumerate(self._factory.lanes.each)
        ]

    def fetch_schema(self, topic: str) -> pa.Schema:
        """The schema of the first sender; where one is declared, none is waited for."""
        factory = self._factory
        if factory.settings.is_raw:
            return envelope_schema()
        if "schema" in factory.config:
            msg = "a schema is declared"
            raise SchemaUnknown(msg)
        lanes, timeout = factory.lanes, factory.settings.timeout
        deadline = time.monotonic() + timeout
        while lanes.holder.schema is None:
            for lane in lanes.each:
                lane.look(_GLANCE / len(lanes.each))
            if lanes.is_closed:
                msg = "the stream is closed"
                raise ClosedError(msg)
            if time.monotonic() > deadline:
                msg = f"no sender has sent a schema within {timeout:g} s"
                remedy = "start the sender, or declare the option `schema`"
                raise StreamTimeout(msg, remedy=remedy)
        return lanes.holder.schema


class ZeromqConsumerFactory(ConsumerFactory):
    """Reads the senders at some endpoints.

    ZeroMQ keeps nothing. With dealer-router the senders keep what is not acknowledged.
    """

    CLAIMS: ClassVar = Claims(redelivers=True)

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
            self._lanes.setdefault(process, Lanes(self.config, self.settings))
        return self._lanes[process]

    def create_partition_level_consumer(
        self,
        client_id: str,
        partition: Partition,
        fields_to_read: Sequence[str] | None = None,
    ) -> PartitionLevelConsumer:
        if partition.id >= len(self.settings.endpoints):
            msg = f"the stream has {len(self.settings.endpoints)} partitions"
            raise TopicNotFound(msg, partition=partition)
        return ZeromqConsumer(self.lanes, self.settings, partition, fields_to_read)

    def create_metadata_provider(self, client_id: str) -> MetadataProvider:
        return ZeromqMetadata(self)

    def acknowledge(self, position: Position) -> None:
        if self.config.get("acknowledge") != "stored":
            return
        lanes = self.lanes
        for partition, offset in position.items():
            if partition.topic == self.config.topic and partition.id < len(lanes.each):
                incarnation = position.incarnations.get(partition)
                lanes.each[partition.id].acknowledge(incarnation, offset)

    def claims(self) -> Claims:
        is_kept = self.settings.pattern == DEALER_ROUTER
        stored = self.config.get("acknowledge") == "stored"
        return Claims(redelivers=is_kept and stored and self.config["senders"] == 1)

    def close(self) -> None:
        lanes = self._lanes.get(os.getpid())
        if lanes is not None:
            lanes.close()
