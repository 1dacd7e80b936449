"""Reading: a partition is a topic filter, an offset counts its messages."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Sequence
from typing import ClassVar

import pyarrow as pa
from streamfactory import spi

from streamfactory_mqtt.positions import Positions
from streamfactory_mqtt.session import (
    Entry,
    Session,
    session_name,
    subscription,
    user_properties,
)


class MqttConsumer(spi.PartitionLevelConsumer):
    """Reads one session."""

    def __init__(self, session: Session, partition: spi.Partition) -> None:
        self._session = session
        self._partition = partition
        self._incarnation: str | None = None
        self._woken = False

    def fetch_messages(
        self, start: int, end: int | None, limits: spi.FetchLimits
    ) -> spi.Fetched:
        taken = self._session.take(start, limits, lambda: self._woken)
        self._woken = False
        before, self._incarnation = self._incarnation, taken.incarnation
        if before not in (None, taken.incarnation):
            return spi.Fetched(None, taken.earliest, incarnation=taken.incarnation)
        if not taken.entries:
            behind = max((loss.end or 0 for loss in taken.losses), default=start)
            return spi.Fetched(
                None,
                max(start, behind),
                incarnation=taken.incarnation,
                losses=taken.losses,
                held_from=taken.earliest,
            )
        return spi.Fetched(
            envelopes(self._partition, taken.entries),
            taken.entries[-1].offset + 1,
            incarnation=taken.incarnation,
            losses=taken.losses,
            held_from=taken.earliest,
        )

    def wake(self) -> None:
        self._woken = True
        self._session.notify()


class MqttMetadata(spi.MetadataProvider):
    """Bounds of the sessions."""

    def __init__(self, factory: MqttConsumerFactory) -> None:
        self._factory = factory

    def fetch_partitions(
        self, topics: Sequence[str], known: Collection[spi.Partition]
    ) -> Sequence[spi.PartitionInfo]:
        return self._factory.states(self._factory.partitions)

    def fetch_bounds(
        self, partitions: Collection[spi.Partition]
    ) -> Sequence[spi.PartitionInfo]:
        return self._factory.states([*partitions])

    def fetch_partition_count(self, topic: str) -> int:
        return len(self._factory.partitions)

    def fetch_schema(self, topic: str) -> pa.Schema:
        return spi.envelope_schema()


class MqttConsumerFactory(spi.ConsumerFactory):
    """Reads the sessions of a client id; holds their connections."""

    CLAIMS: ClassVar = spi.Claims(redelivers=True)
    RENUMBERS = True

    def __init__(self, config: spi.StreamConfig) -> None:
        super().__init__(config)
        self.partitions = [
            spi.Partition(config.topic, number)
            for number in range(len(config.get("filters") or ()))
        ]
        self._lock = threading.Lock()
        self._inherited: list[object] = []
        """Of the process that was forked: neither closed nor dropped."""
        self._process = os.getpid()
        self._positions: Positions | None = None
        self._sessions: dict[spi.Partition, Session] = {}

    def session(self, partition: spi.Partition) -> Session:
        """The session of a partition, connected at first use.

        Raises:
            StreamError: The broker cannot be used.
        """
        self._check(partition)
        with self._own():
            held = self._sessions.get(partition)
            if held is not None and held.error is not None:
                # Another process took it over, or the broker refused it for a while.
                del self._sessions[partition]
                held.close()
            if partition not in self._sessions:
                session = Session(self.config, partition, self._opened())
                session.start()
                self._sessions[partition] = session
            return self._sessions[partition]

    def states(self, partitions: Sequence[spi.Partition]) -> list[spi.PartitionInfo]:
        """Where sessions are, without taking over those of other processes.

        Raises:
            StreamError: The broker cannot be used.
        """
        for partition in partitions:
            self._check(partition)
        with self._own():
            names = [session_name(subscription(self.config, p)) for p in partitions]
            kept = self._opened().fetch(names)
            states = [(each.incarnation, each.acknowledged) for each in kept]
            for number, partition in enumerate(partitions):
                held = self._sessions.get(partition)
                if held is not None and held.error is None:
                    states[number] = held.state()
        return [
            spi.PartitionInfo(partition, earliest, None, incarnation=incarnation)
            for partition, (incarnation, earliest) in zip(
                partitions, states, strict=True
            )
        ]

    def _check(self, partition: spi.Partition) -> None:
        if partition not in self.partitions:
            msg = f"there are {len(self.partitions)} filters, and so many partitions"
            raise spi.TopicNotFound(msg, partition=partition)

    def _own(self) -> threading.Lock:
        """The lock of this process; a child that was forked has its own connections."""
        if self._process != os.getpid():
            self._inherited += [self._positions, self._sessions, self._lock]
            self._positions, self._sessions = None, {}
            self._process, self._lock = os.getpid(), threading.Lock()
        return self._lock

    def _opened(self) -> Positions:
        if self._positions is not None and self._positions.error is not None:
            self._positions.close()
            self._positions = None
        if self._positions is None:
            names = [
                session_name(subscription(self.config, p)) for p in self.partitions
            ]
            positions = Positions(self.config, names)
            positions.open(clean=True)
            self._positions = positions
        return self._positions

    def create_partition_level_consumer(
        self,
        client_id: str,
        partition: spi.Partition,
        fields_to_read: Sequence[str] | None = None,
    ) -> MqttConsumer:
        return MqttConsumer(self.session(partition), partition)

    def create_metadata_provider(self, client_id: str) -> MqttMetadata:
        return MqttMetadata(self)

    def acknowledge(self, position: spi.Position) -> None:
        if self.config["acknowledge"] != "stored":
            return
        for partition, offset in position.items():
            if partition in self.partitions:
                incarnation = position.incarnations.get(partition)
                self.session(partition).acknowledge(offset, incarnation)

    def claims(self) -> spi.Claims:
        return spi.Claims(redelivers=self.config["acknowledge"] == "stored")

    def close(self) -> None:
        if self._process != os.getpid():
            return
        sessions, self._sessions = self._sessions, {}
        positions, self._positions = self._positions, None
        for session in sessions.values():
            session.finish()
        if positions is not None:
            positions.close()


def envelopes(partition: spi.Partition, entries: Sequence[Entry]) -> pa.RecordBatch:
    """Messages as rows of `envelope_schema`: the key is the topic of the message."""
    schema, count = spi.envelope_schema(), len(entries)
    columns = {
        "key": [entry.topic.encode() for entry in entries],
        "value": [entry.payload for entry in entries],
        "topic": [partition.topic] * count,
        "partition": [partition.id] * count,
        "offset": [entry.offset for entry in entries],
        "timestamp": [None] * count,
        "timestampType": [-1] * count,
        "headers": [user_properties(entry.properties) or None for entry in entries],
    }
    arrays = [pa.array(columns[field.name], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
