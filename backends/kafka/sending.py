"""How rows reach the client of a producer: by its method ``produce``, or natively."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections import deque
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError, KafkaException, Producer

from streamfactory.backends.kafka.errors import code_of, failure
from streamfactory.spi import MessageTooLarge, Partition, SchemaMismatch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from confluent_kafka import Message

    Refusal = KafkaException | MessageTooLarge | SchemaMismatch

SLICE: Final = 0.2
"""Seconds that one call of the client may block."""
_CHUNK: Final = 2048
"""Messages between two polls for delivery reports."""


class MessageSender(ABC):
    """Queues messages in one producer, and records which were not delivered.

    For the thread of the producer.
    """

    @abstractmethod
    def connect(self, settings: Mapping[str, Any]) -> Producer:
        """Create the producer. Called once.

        Raises:
            KafkaException: The client rejects its settings.
        """

    @abstractmethod
    def send(self, topic: str, partition: int, rows: pa.RecordBatch) -> Iterator[None]:
        """Queue rows of `message_schema`, in steps.

        After each step the caller serves the client's callbacks, and ends the wait for
        a full queue when it has to.

        Raises:
            KafkaException: The client refused a message.
            MessageTooLarge: permanent.
        """

    @abstractmethod
    def forget(self) -> None:
        """Forget failures, before a transaction."""

    @property
    @abstractmethod
    def failure(self) -> Refusal | None:
        """The error of the first message that was not delivered."""

    @abstractmethod
    def check_delivered(self) -> None:
        """Check, after a flush without failures, that all messages were delivered.

        Raises:
            KafkaException: The outcome of some messages is unknown.
        """

    @abstractmethod
    def close(self) -> None:
        """Drop the producer. Called before it is destroyed, and nothing else after it.

        Frames of an error that was raised here must not keep the client open: they
        refer to the sender, not to the producer.
        """


class PythonSender(MessageSender):
    """Calls ``produce`` of the Python client for each message."""

    def __init__(self) -> None:
        self._producer: Any = None
        self._failure: Refusal | None = None

    def connect(self, settings: Mapping[str, Any]) -> Producer:
        producer = Producer({**settings, "on_delivery": self._on_failure})
        self._producer = producer
        return producer

    def send(self, topic: str, partition: int, rows: pa.RecordBatch) -> Iterator[None]:
        for at in range(0, rows.num_rows, _CHUNK):
            columns = _columns(rows.slice(at, _CHUNK))
            yield from self._produce(topic, partition, columns)

    def forget(self) -> None:
        self._failure = None

    @property
    def failure(self) -> Refusal | None:
        return self._failure

    def check_delivered(self) -> None:
        pass  # the client reports failures only: there is nothing to compare

    def close(self) -> None:
        self._producer = None

    def _on_failure(self, error: KafkaError, message: Message) -> None:
        if self._failure is None and error.code() != KafkaError._PURGE_QUEUE:
            topic, partition = message.topic(), message.partition()
            size = len(message.value() or b"")
            self._failure = refusal(
                KafkaException(error), str(topic), int(partition or 0), size
            )

    def _produce(
        self, topic: str, partition: int, columns: list[Any]
    ) -> Iterator[None]:
        done, count = 0, len(columns[0])
        while done < count:
            rest = columns if not done else [c and c[done:] for c in columns]
            values = iter(rest[0])
            try:
                deque(_calls(self._producer.produce, topic, partition, values, rest), 0)
            except BufferError:
                # The call that failed has taken its value from the iterator.
                done = count - operator.length_hint(values) - 1
                self._producer.poll(SLICE)
            except KafkaException as error:
                value = rest[0][len(rest[0]) - operator.length_hint(values) - 1]
                raise refusal(error, topic, partition, len(value or b"")) from error
            else:
                done = count
            yield


def refusal(error: KafkaException, topic: str, partition: int, size: int) -> Refusal:
    """The error for a message that the client or a broker refused.

    Args:
        error: Of the client.
        topic: Of the message.
        partition: Of the message.
        size: Bytes of its value.
    """
    code = code_of(error)
    if code in (KafkaError.INVALID_TIMESTAMP, KafkaError.INVALID_RECORD):
        place = Partition(topic, partition)
        refused = failure(error, f"a row cannot be written to partition {place}")
        assert isinstance(refused, SchemaMismatch)
        return refused.at(partition=place)
    if code != KafkaError.MSG_SIZE_TOO_LARGE:
        return error
    msg = f"a message exceeds max.message.bytes of the topic with its value of {size} "
    msg += "bytes, its key and its headers"
    remedy = "increase the topic's max.message.bytes, or write smaller messages"
    return MessageTooLarge(msg, partition=Partition(topic, partition), remedy=remedy)


def _columns(rows: pa.RecordBatch) -> list[Any]:
    """Values, keys, timestamps and headers as arguments of ``produce``."""
    value, key, timestamp, headers = (
        rows.column(name) for name in ("value", "key", "timestamp", "headers")
    )
    return [
        value.to_pylist(),
        None if key.null_count == len(key) else key.to_pylist(),
        None if timestamp.null_count == len(timestamp) else _millis(timestamp),
        None if headers.null_count == len(headers) else _headers(headers),
    ]


def _millis(timestamp: pa.Array) -> list[int]:
    """Milliseconds, rounded down; 0 for null, for which the client sets the time."""
    micros = timestamp.cast(pa.int64()).fill_null(0)
    found: list[int] = (micros.to_numpy() // 1000).tolist()
    return found


def _headers(column: pa.Array) -> list[list[tuple[str, bytes | None]] | None]:
    flat = column.flatten()
    pairs = list(
        zip(flat.field("key").to_pylist(), flat.field("value").to_pylist(), strict=True)
    )
    lengths = pc.list_value_length(column).to_pylist()
    found: list[list[tuple[str, bytes | None]] | None] = []
    at = 0
    for length in lengths:
        found.append(pairs[at : at + length] if length else None)
        at += length or 0
    return found


def _calls(
    produce: Any, topic: str, partition: int, values: Any, columns: list[Any]
) -> Any:
    """An iterator that makes the calls: a loop in C without Python code."""
    _, keys, timestamps, headers = columns
    parts = [repeat(topic), values, keys or repeat(None), repeat(partition)]
    if timestamps is not None or headers is not None:
        parts += [repeat(None), repeat(None), timestamps or repeat(0)]
    if headers is not None:
        parts.append(headers)
    return map(produce, *parts)
