"""Messages of the partitions of a group member, and what its client reports with them.

`GroupRows` is the interface of both ways to read them; `ConsumedRowsByPartition` reads
with the Python client.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple, Protocol

from confluent_kafka import KafkaError, Message

from streamfactory.backends.kafka.columns import Columns
from streamfactory.spi import Partition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pyarrow as pa
    from confluent_kafka import Consumer

    from streamfactory.backends.kafka.clients import Watch


class Reported(NamedTuple):
    """An error that a client reported instead of a message."""

    error: KafkaError
    partition: Partition | None
    """None: it is not about one partition."""
    offset: int | None = None
    """The offset that was refused, if known."""


class PartitionRows(Protocol):
    """The rows of one partition."""

    @property
    def size(self) -> int:
        """Bytes of keys, values and headers."""

    @property
    def next_offset(self) -> int:
        """After the last row."""

    def batch(self) -> pa.RecordBatch:
        """All rows, as envelopes."""


class GroupRows(ABC):
    """The rows that one gathering of a member returns: a batch of each partition."""

    def __init__(self) -> None:
        self.errors: list[Reported] = []
        """In the order in which they were reported."""
        self.rewinds: dict[Partition, int] = {}
        """Partitions to be read again, from an offset that is not among the rows."""

    @property
    @abstractmethod
    def rows(self) -> int:
        """Number of rows of all partitions."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Bytes of keys, values and headers of all partitions."""

    @property
    @abstractmethod
    def ends(self) -> Mapping[Partition, int]:
        """Ends of partitions that were reached."""

    @abstractmethod
    def poll(self, wanted: int, most: int, wait: float) -> int:
        """Add up to ``wanted`` messages, waiting for them for ``wait`` seconds.

        No message is added to rows of ``most`` bytes; the Python client counts after
        each poll, not after each message.

        Partitions may be assigned and revoked during the call. Returns the number of
        messages and events; fewer than requested: the queue is empty, the rows have
        ``most`` bytes, or an error was reported.
        """

    @abstractmethod
    def by_partition(self) -> Iterable[tuple[Partition, PartitionRows]]:
        """The rows of each partition that has any. Called once, after all else."""


class ConsumedRowsByPartition(GroupRows):
    """Rows of messages that a client's ``consume`` returns.

    Args:
        consumer: The client.
        watch: Cleared when a broker responded.
        headers: Whether headers are needed.
    """

    def __init__(self, consumer: Consumer, watch: Watch, *, headers: bool) -> None:
        super().__init__()
        self._consumer = consumer
        self._watch = watch
        self._headers = headers
        self._columns: dict[Partition, Columns] = {}
        self._ends: dict[Partition, int] = {}
        self._rows = 0

    @property
    def rows(self) -> int:
        return self._rows

    @property
    def size(self) -> int:
        return sum(columns.size for columns in self._columns.values())

    @property
    def ends(self) -> Mapping[Partition, int]:
        return self._ends

    def poll(self, wanted: int, most: int, wait: float) -> int:
        messages = self._consumer.consume(wanted, wait)
        received = len(messages)
        if any(map(Message.error, messages)):
            messages = self._without_events(messages)
        # Messages of one partition are adjacent, in a few runs.
        for topic, of_topic in groupby(messages, Message.topic):
            for number, run in groupby(of_topic, Message.partition):
                self._add(Partition(str(topic), int(number or 0)), list(run))
        if messages:
            self._watch.clear()
        return received

    def by_partition(self) -> Iterable[tuple[Partition, PartitionRows]]:
        return self._columns.items()

    def _add(self, partition: Partition, messages: list[Message]) -> None:
        if partition not in self._columns:
            self._columns[partition] = Columns(partition, headers=self._headers)
        self._columns[partition].add(messages)
        self._rows += len(messages)

    def _without_events(self, messages: list[Message]) -> list[Message]:
        kept = []
        for message in messages:
            error = message.error()
            if error is None:
                kept.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                self._watch.clear()
                self._ends[_partition(message)] = message.offset() or 0
            else:
                self.errors.append(reported(message, error))
        return kept


def reported(message: Message, error: KafkaError) -> Reported:
    """The error that a message stands for."""
    about_one = message.topic() is not None and (message.partition() or 0) >= 0
    if not about_one:
        return Reported(error, None)
    offset = message.offset()
    known = offset is not None and offset >= 0
    return Reported(error, _partition(message), offset if known else None)


def _partition(message: Message) -> Partition:
    return Partition(str(message.topic()), int(message.partition() or 0))
