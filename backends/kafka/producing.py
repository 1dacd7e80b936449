"""A transactional producer, and the conversion of columns to ``produce`` calls."""

from __future__ import annotations

import operator
import time
from collections import deque
from contextlib import suppress
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError, KafkaException, Producer

from streamfactory.spi import (
    ClosedError,
    ConfigError,
    MessageTooLarge,
    Partition,
    StreamTimeout,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from confluent_kafka import Message

_CHUNK: Final = 2048
"""Messages between two polls for delivery reports."""
_SLICE: Final = 0.2
"""Seconds that one call of the client may block."""
_PARTING: Final = 1.0
"""Seconds to abort an open transaction on close; otherwise the broker does it."""
_QUEUE_KBYTES: Final = 65_536
"""Size of the client's queue: back-pressure is by bytes only."""


class Deadline:
    """The time at which waiting ends."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds left; at least 0."""
        return max(0.0, self._end - time.monotonic())

    def check(self, what: str) -> None:
        """Raise if the deadline has passed.

        Raises:
            StreamTimeout: transient.
        """
        if not self.left:
            msg = f"{what}: timed out after {self.seconds:.0f} s"
            raise StreamTimeout(msg)


class TransactionalProducer:
    """A producer with an initialised transactional id; fences earlier producers of it.

    One thread at a time, except for ``wake``.

    Args:
        settings: Settings of the client.
        name: The transactional id.
        topic: A topic that will be written.
        timeout: Seconds after which the broker aborts a transaction.
        deadline: For the initialisation, which waits for transactions of an earlier
            instance.

    Raises:
        KafkaException: No resource is left open.
        StreamTimeout: transient.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        name: str,
        topic: str,
        timeout: float,
        deadline: Deadline,
    ) -> None:
        self.timeout = timeout
        self._failure: KafkaException | MessageTooLarge | None = None
        self._woken = False
        self._begun = False
        """Whether a transaction is open, and neither commit nor abort was tried."""
        owned = {
            "transactional.id": name,
            "transaction.timeout.ms": int(timeout * 1000),
            "delivery.report.only.error": True,
            "on_delivery": self._on_failure,
        }
        self._producer: Any = Producer({**_defaults(), **settings, **owned})
        try:
            self._connect(topic, deadline)
            self._retry(self._producer.init_transactions, deadline)
        except BaseException as error:
            self.close()
            if _code(error) == KafkaError.INVALID_TRANSACTION_TIMEOUT:
                raise _too_long(timeout) from error
            raise

    def begin(self) -> None:
        """Begin a transaction."""
        self._failure = None
        self._producer.begin_transaction()
        self._begun = True

    def send(
        self, topic: str, partition: int, rows: pa.RecordBatch, deadline: Deadline
    ) -> None:
        """Queue messages; blocks while the queue is full.

        Args:
            topic: Target topic.
            partition: Target partition.
            rows: Rows of `message_schema`.
            deadline: For the wait.

        Raises:
            KafkaException: The broker refused a message of this transaction.
            MessageTooLarge: permanent.
        """
        for at in range(0, rows.num_rows, _CHUNK):
            columns = _columns(rows.slice(at, _CHUNK))
            self._send(topic, partition, columns, deadline)

    def send_one(
        self, topic: str, partition: int, key: bytes, value: bytes, deadline: Deadline
    ) -> None:
        """Queue one message."""
        self._send(topic, partition, [[value], [key], None, None], deadline)

    def commit(self, deadline: Deadline) -> None:
        """Commit; the broker's result is known on return.

        Raises:
            KafkaException: Not committed, or unknown: initialise a new producer and
                read the marker.
            StreamTimeout: transient; the outcome is unknown.
        """
        while self._producer.flush(_SLICE):
            self._check(deadline)
        self._check(deadline)
        self._begun = False
        try:
            self._retry(self._producer.commit_transaction, deadline)
        except KafkaException:
            self._check(deadline)  # a delivery error is more specific
            raise

    def abort(self, deadline: Deadline) -> None:
        """Abort the open transaction.

        Raises:
            KafkaException: Not aborted yet; the broker does it after the transaction
                timeout at the latest.
        """
        self._begun = False
        self._retry(self._producer.abort_transaction, deadline)

    def wake(self) -> None:
        """End the waits of other calls."""
        self._woken = True

    def close(self) -> None:
        """Drop the producer; the broker aborts an open transaction.

        If a client is destroyed while it registers partitions of a transaction,
        librdkafka aborts the process (assertion `txn_req_cnt > 0`). So abort first.
        """
        if self._producer is not None and self._begun:
            with suppress(KafkaException, StreamTimeout):
                self.abort(Deadline(_PARTING))
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()  # otherwise it would wait for an unreachable broker

    def _connect(self, topic: str, deadline: Deadline) -> None:
        """Connect before initialising, which would otherwise retry after half a second.

        The first response comes from a bootstrap connection, which the client closes;
        later ones come from a known broker.
        """
        with suppress(KafkaException):  # initialising reports the reason
            for _ in range(3):
                answer = self._producer.list_topics(topic, timeout=_slice(deadline))
                if answer.orig_broker_id >= 0:
                    break

    def _send(
        self, topic: str, partition: int, columns: list[Any], deadline: Deadline
    ) -> None:
        done, count = 0, len(columns[0])
        while done < count:
            rest = columns if not done else [c and c[done:] for c in columns]
            values = iter(rest[0])
            try:
                deque(_calls(self._producer.produce, topic, partition, values, rest), 0)
            except BufferError:
                # The call that failed has taken its value from the iterator.
                done = count - operator.length_hint(values) - 1
                self._producer.poll(_SLICE)
            except KafkaException as error:
                at = len(rest[0]) - operator.length_hint(values) - 1
                raise self._refused(error, topic, partition, rest[0][at]) from error
            else:
                done = count
            self._producer.poll(0)
            self._check(deadline)

    def _check(self, deadline: Deadline) -> None:
        if self._failure is not None:
            raise self._failure
        if self._woken:
            msg = "closed while writing"
            raise ClosedError(msg)
        deadline.check("writing to Kafka")

    def _retry(self, call: Callable[[float], None], deadline: Deadline) -> None:
        """Call a transaction function until its result is final."""
        while True:
            try:
                call(_slice(deadline))
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
                if not deadline.left:
                    msg = f"{call.__name__}: {error.args[0].str()}"
                    raise StreamTimeout(msg) from error
            else:
                return

    def _on_failure(self, error: KafkaError, message: Message) -> None:
        if self._failure is None and error.code() != KafkaError._PURGE_QUEUE:
            topic, partition = message.topic(), message.partition()
            self._failure = self._refused(
                KafkaException(error), str(topic), int(partition or 0), message.value()
            )

    def _refused(
        self, error: KafkaException, topic: str, partition: int, value: bytes | None
    ) -> KafkaException | MessageTooLarge:
        if _code(error) != KafkaError.MSG_SIZE_TOO_LARGE:
            return error
        msg = (
            f"a message of {len(value or b'')} bytes exceeds max.message.bytes of the "
            "topic"
        )
        remedy = "increase the topic's max.message.bytes, or write smaller messages"
        return MessageTooLarge(
            msg, partition=Partition(topic, partition), remedy=remedy
        )


def _slice(deadline: Deadline) -> float:
    """Seconds for one blocking call."""
    return max(_SLICE, min(1.0, deadline.left))


def _defaults() -> dict[str, Any]:
    return {
        "linger.ms": 5,
        "topic.metadata.propagation.max.ms": 5000,  # the topics existed a moment ago
        "queue.buffering.max.messages": 0,
        "queue.buffering.max.kbytes": _QUEUE_KBYTES,
        "message.max.bytes": 1_000_000_000,  # the topic decides
    }


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


def _code(error: BaseException) -> int | None:
    first = error.args[0] if error.args else None
    return first.code() if isinstance(first, KafkaError) else None


def _too_long(timeout: float) -> ConfigError:
    msg = f"the broker does not allow a transaction timeout of {timeout:.0f} s"
    remedy = (
        "increase the broker's transaction.max.timeout.ms, write smaller epochs, or "
        "set stream.kafka.transaction.timeout.millis"
    )
    return ConfigError(msg, remedy=remedy)
