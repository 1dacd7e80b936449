"""A transactional producer."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException

from streamfactory.arrowlog.messages import message_schema
from streamfactory.backends.kafka.errors import code_of
from streamfactory.backends.kafka.native_sending import NativeSender
from streamfactory.backends.kafka.sending import SLICE, PythonSender
from streamfactory.spi import ClosedError, ConfigError, StreamTimeout

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from streamfactory.backends.kafka.native_library import Library
    from streamfactory.backends.kafka.sending import MessageSender

_PARTING: Final = 1.0
"""Seconds to abort an open transaction on close; otherwise the broker does it."""
_STALLED: Final = 1.0
"""Seconds without an answer of the broker, after which it is asked for the topics."""
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
        library: The compiled part, if rows are sent natively.

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
        library: Library | None = None,
    ) -> None:
        self.timeout = timeout
        self._sender: MessageSender
        self._sender = PythonSender() if library is None else NativeSender(library)
        self._woken = False
        self._begun = False
        """Whether a transaction is open, and neither commit nor abort was tried."""
        self._topics: set[str] = set()
        """Topics that the transaction writes."""
        owned = {
            "transactional.id": name,
            "transaction.timeout.ms": int(timeout * 1000),
            "delivery.report.only.error": True,
        }
        settings = {**_defaults(), **settings, **owned}
        self._producer: Any = self._sender.connect(settings)
        try:
            self._connect(topic, deadline)
            self._retry(self._producer.init_transactions, deadline)
        except BaseException as error:
            self.close()
            if code_of(error) == KafkaError.INVALID_TRANSACTION_TIMEOUT:
                raise _too_long(timeout) from error
            raise

    def begin(self) -> None:
        """Begin a transaction."""
        self._sender.forget()
        self._topics.clear()
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
        self._send(topic, partition, rows, deadline)

    def send_one(
        self, topic: str, partition: int, key: bytes, value: bytes, deadline: Deadline
    ) -> None:
        """Queue one message."""
        row = {"key": key, "value": value}
        rows = pa.RecordBatch.from_pylist([row], schema=message_schema())
        self._send(topic, partition, rows, deadline)

    def commit(self, deadline: Deadline) -> None:
        """Commit; the broker's result is known on return.

        Raises:
            KafkaException: Not committed, or unknown: initialise a new producer and
                read the marker.
            StreamTimeout: transient; the outcome is unknown.
        """
        self._flush(deadline)
        self._sender.check_delivered()
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
        self._sender.close()
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

    def _flush(self, deadline: Deadline) -> None:
        """Wait until the broker has answered for each message.

        The client adds partitions to a transaction again and again for as long as the
        broker does not know their topic, and does not look whether it was deleted.
        Its messages fail when it is asked for the topic.
        """
        queued, since = 0, time.monotonic()
        while left := self._producer.flush(SLICE):
            self._check(deadline)
            now = time.monotonic()
            if left != queued:
                queued, since = left, now
            elif now - since > _STALLED:
                since = now
                for topic in self._topics:
                    with suppress(KafkaException):  # messages state the reason
                        self._producer.list_topics(topic, timeout=_slice(deadline))
                    self._check(deadline)
        self._check(deadline)

    def _send(
        self, topic: str, partition: int, rows: pa.RecordBatch, deadline: Deadline
    ) -> None:
        self._topics.add(topic)
        for _ in self._sender.send(topic, partition, rows):
            self._producer.poll(0)
            self._check(deadline)

    def _check(self, deadline: Deadline) -> None:
        failure = self._sender.failure
        if failure is not None:
            raise failure
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


def _slice(deadline: Deadline) -> float:
    """Seconds for one blocking call."""
    return max(SLICE, min(1.0, deadline.left))


def _defaults() -> dict[str, Any]:
    return {
        "linger.ms": 5,
        "topic.metadata.propagation.max.ms": 5000,  # the topics existed a moment ago
        "queue.buffering.max.messages": 0,
        "queue.buffering.max.kbytes": _QUEUE_KBYTES,
        "message.max.bytes": 1_000_000_000,  # the topic decides
    }


def _too_long(timeout: float) -> ConfigError:
    msg = f"the broker does not allow a transaction timeout of {timeout:.0f} s"
    remedy = (
        "increase the broker's transaction.max.timeout.ms, write smaller epochs, or "
        "set stream.kafka.transaction.timeout.millis"
    )
    return ConfigError(msg, remedy=remedy)
