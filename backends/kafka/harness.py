"""Harness of the conformance kit. It uses the client, not the backend.

The broker is named by KAFKA_BOOTSTRAP, ``localhost:9092`` by default. A number is the
text of a message.
"""

from __future__ import annotations

import os
import time
import uuid
from contextlib import closing
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not in its stubs
    AdminClient,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

from streamfactory.backends.kafka.clients import CLIENT_LOG

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

_TIMEOUT: Final = 15.0
_POLL: Final = 0.02
_PAUSE: Final = "20"
"""Milliseconds. Half of it passes between the first connections of a client."""
_WAIT: Final = "10"
"""Milliseconds of a fetch without result. It delays readers that seek and the report
of a partition's end."""


def _unless_gone(deleted: Any) -> None:
    """Wait until a topic is deleted, which may have been done before."""
    try:
        deleted.result(_TIMEOUT)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise


class KafkaHarness:
    """Topics of a running broker."""

    recreation_timeout = 8.0

    def __init__(self, folder: Path) -> None:
        self._bootstrap = os.environ.get("KAFKA_BOOTSTRAP", "localhost:9092")
        self._settings: dict[str, Any] = {
            "bootstrap.servers": self._bootstrap,
            "reconnect.backoff.ms": _PAUSE,
            "logger": CLIENT_LOG,
        }
        self._made: list[str] = []

    def create(self, partitions: int) -> None:
        self._make(f"conformance-{uuid.uuid4().hex}", partitions)

    def properties(self) -> Mapping[str, str]:
        return {
            "streamType": "kafka",
            "stream.kafka.topic.name": self._topic,
            "stream.kafka.broker.list": self._bootstrap,
            "stream.kafka.decoder.class.name": "raw",
            "stream.kafka.consumer.prop.fetch.wait.max.ms": _WAIT,
            "stream.kafka.consumer.prop.reconnect.backoff.ms": _PAUSE,
            "stream.kafka.producer.prop.reconnect.backoff.ms": _PAUSE,
        }

    def group_properties(self) -> Mapping[str, str]:
        """The shortest session timeout that a broker accepts by default."""
        return {
            "stream.kafka.consumer.prop.session.timeout.ms": "6000",
            "stream.kafka.consumer.prop.heartbeat.interval.ms": "500",
        }

    def partitions(self) -> Sequence[int]:
        return sorted(self._found(self._topic))

    def write(self, partition: int, numbers: Sequence[int]) -> None:
        self._send(partition, [{"value": str(number)} for number in numbers])

    def write_messages(self, partition: int, messages: Sequence[Any]) -> None:
        sent: list[dict[str, Any]] = []
        for message in messages:
            fields: dict[str, Any] = {"value": str(message.number), "key": message.key}
            if message.headers:
                fields["headers"] = list(message.headers)
            if message.timestamp_ms is not None:
                fields["timestamp"] = message.timestamp_ms
            sent.append(fields)
        self._send(partition, sent)

    def write_values(self, partition: int, values: Sequence[bytes]) -> None:
        self._send(partition, [{"value": value} for value in values])

    def tombstone(self, partition: int) -> None:
        self._send(partition, [{"value": None}])

    def numbers(self, rows: pa.RecordBatch) -> list[int]:
        return [int(value) for value in rows.column("value").to_pylist()]

    def rows(self, numbers: Sequence[int]) -> pa.RecordBatch:
        import pyarrow as pa

        values = [str(number).encode() for number in numbers]
        return pa.record_batch({"value": pa.array(values, pa.binary())})

    def visible(self) -> Mapping[int, Sequence[int]]:
        """The rows visible to a reader now; open transactions hide later rows."""
        seen: dict[int, list[int]] = {number: [] for number in self.partitions()}
        settings = self._settings | {
            "group.id": "harness",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": _WAIT,
        }
        with closing(Consumer(settings)) as consumer:
            first = [TopicPartition(self._topic, number, 0) for number in seen]
            consumer.assign(first)
            deadline, ended = time.monotonic() + _TIMEOUT, set[int]()
            while len(ended) < len(seen):
                message = consumer.poll(_POLL)
                if time.monotonic() > deadline:
                    msg = f"no end of {self._topic} after {_TIMEOUT:.0f} s"
                    raise TimeoutError(msg)
                if message is None:
                    continue
                if message.error() is None:
                    seen[message.partition() or 0].append(int(message.value() or b""))
                else:
                    ended.add(message.partition() or 0)
        return seen

    def grow(self, partitions: int) -> None:
        asked = self._admin.create_partitions([NewPartitions(self._topic, partitions)])
        asked[self._topic].result(_TIMEOUT)
        self._wait(self._topic, partitions)
        self._forget_producer()

    def truncate(self, partition: int, messages: int) -> None:
        """Delete records before an offset; here each message has one offset."""
        where = TopicPartition(self._topic, partition)
        earliest: Any = OffsetSpec.earliest  # its stubs have no types
        listed = self._admin.list_offsets({where: earliest()})
        first = listed[where].result(_TIMEOUT).offset
        before = TopicPartition(self._topic, partition, first + messages)
        self._admin.delete_records([before])[before].result(_TIMEOUT)

    def recreate(self) -> None:
        partitions = len(self.partitions())
        self._delete(self._topic)
        self._make(self._topic, partitions)
        self._forget_producer()

    def nowhere(self) -> Mapping[str, str]:
        return {"stream.kafka.topic.name": f"nowhere-{uuid.uuid4().hex}"}

    def close(self) -> None:
        made, self._made = self._made, []
        if made:
            for deleted in self._admin.delete_topics(sorted(set(made))).values():
                _unless_gone(deleted)
        # Dropping the last reference is what closes these clients.
        self.__dict__.pop("_admin", None)
        self._forget_producer()

    def _forget_producer(self) -> None:
        """Drop the producer, which caches the old partitions."""
        self.__dict__.pop("_producer", None)

    @cached_property
    def _admin(self) -> AdminClient:
        return AdminClient(self._settings)

    @cached_property
    def _producer(self) -> Producer:
        # Idempotent: retries after a change of leader must not reorder messages. One
        # request in flight alone does not suffice (seen with a new partition).
        ordered = {"linger.ms": 0, "enable.idempotence": True}
        return Producer(self._settings | ordered)

    @property
    def _topic(self) -> str:
        return self._made[-1]

    def _send(self, partition: int, messages: Sequence[Mapping[str, Any]]) -> None:
        """Send messages, each given by the arguments of ``produce``."""
        failed: list[object] = []

        def on_delivery(error: object, _: object) -> None:
            if error is not None:
                failed.append(error)

        for message in messages:
            self._producer.produce(
                self._topic, partition=partition, on_delivery=on_delivery, **message
            )
        if self._producer.flush(_TIMEOUT) or failed:
            msg = f"the broker did not accept messages: {failed or 'no answer'}"
            raise RuntimeError(msg)

    def _make(self, topic: str, partitions: int) -> None:
        deadline = time.monotonic() + _TIMEOUT
        while True:
            # Cases write messages of past years, which retention would delete.
            new = NewTopic(topic, partitions, config={"retention.ms": "-1"})
            asked = self._admin.create_topics([new])
            try:
                asked[topic].result(_TIMEOUT)
                break
            except KafkaException:  # a topic of this name is still being deleted
                if time.monotonic() > deadline:
                    raise
                time.sleep(_POLL)
        self._made.append(topic)
        self._wait(topic, partitions)

    def _delete(self, topic: str) -> None:
        self._admin.delete_topics([topic])[topic].result(_TIMEOUT)
        self._wait(topic, 0)

    def _wait(self, topic: str, partitions: int) -> None:
        deadline = time.monotonic() + _TIMEOUT
        while len(self._found(topic)) != partitions:
            if time.monotonic() > deadline:
                msg = f"topic {topic} does not have {partitions} partitions"
                raise TimeoutError(msg)
            time.sleep(_POLL)

    def _found(self, topic: str) -> list[int]:
        """Partitions that have a leader."""
        described = self._admin.list_topics(timeout=_TIMEOUT).topics.get(topic)
        if described is None:
            return []
        return [p.id for p in described.partitions.values() if p.leader >= 0]
