"""Topics made and filled with the client library alone."""

from __future__ import annotations

import time
import uuid
from contextlib import closing
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not in its stubs
    AclBinding,
    AclOperation,
    AclPermissionType,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from tests.kafka.broker import quiet_admin

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

TIMEOUT = 60.0


class Topics:
    """A hand on the broker."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.admin = quiet_admin(bootstrap)

    def create(
        self,
        name: str | None = None,
        partitions: int = 1,
        *,
        copies: int = 1,
        config: Mapping[str, str] | None = None,
    ) -> str:
        """Make a topic, and wait until it can be used."""
        name = name or f"topic-{uuid.uuid4().hex[:12]}"
        new = NewTopic(name, partitions, copies, config=dict(config or {}))
        self.admin.create_topics([new])[name].result(TIMEOUT)
        self.wait(name, partitions)
        return name

    def wait(self, name: str, partitions: int) -> None:
        """Wait until so many partitions have leaders; none is a topic that is gone."""
        deadline = time.monotonic() + TIMEOUT
        while time.monotonic() < deadline:
            found = self.admin.list_topics(timeout=TIMEOUT).topics.get(name)
            led = (
                [p for p in found.partitions.values() if p.leader >= 0] if found else []
            )
            if len(led) == partitions:
                return
            time.sleep(0.02)
        msg = f"{name} has not got {partitions} partitions"
        raise TimeoutError(msg)

    def delete(self, name: str) -> None:
        self.admin.delete_topics([name])[name].result(TIMEOUT)
        self.wait(name, 0)

    def recreate(self, name: str, partitions: int = 1) -> None:
        """Delete a topic, and make another of its name."""
        self.delete(name)
        deadline = time.monotonic() + TIMEOUT
        while True:
            try:
                self.create(name, partitions)
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
            else:
                return

    def grow(self, name: str, partitions: int) -> None:
        new = NewPartitions(name, partitions)
        self.admin.create_partitions([new])[name].result(TIMEOUT)
        self.wait(name, partitions)

    def truncate(self, name: str, partition: int, before: int) -> None:
        """Let the broker drop everything before an offset."""
        where = TopicPartition(name, partition, before)
        self.admin.delete_records([where])[where].result(TIMEOUT)

    def configure(self, name: str, config: Mapping[str, str]) -> None:
        """Change settings of a topic."""
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
            for key, value in config.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
        self.admin.incremental_alter_configs([resource])[resource].result(TIMEOUT)

    def forbid(self, name: str, user: str, what: Any = AclOperation.ALL) -> None:
        """Let a user not do something with a topic; by default nothing at all."""
        rules = [
            AclBinding(
                ResourceType.TOPIC,
                name,
                ResourcePatternType.LITERAL,
                f"User:{user}",
                "*",
                operation,
                permission,
            )
            for operation, permission in (
                # A topic with rules is closed, but for what they allow.
                (AclOperation.ALL, AclPermissionType.ALLOW),
                (what, AclPermissionType.DENY),
            )
        ]
        for made in self.admin.create_acls(rules).values():
            made.result(TIMEOUT)

    def leader(self, name: str, partition: int = 0) -> int:
        """The node that leads a partition."""
        found = self.admin.list_topics(name, timeout=TIMEOUT).topics[name]
        return int(found.partitions[partition].leader)

    def send(
        self,
        name: str,
        values: Iterable[bytes | None],
        *,
        partition: int = 0,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes | None]] | None = None,
        timestamp: int = 0,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """Append messages; all are there when this returns."""
        producer = self.producer(**dict(settings or {}))
        for value in values:
            self.produce(
                producer,
                name,
                value,
                partition=partition,
                key=key,
                headers=headers,
                timestamp=timestamp,
            )
        assert producer.flush(TIMEOUT) == 0

    def create_compacted(self, name: str | None = None) -> str:
        """A topic of one key with gaps, which compaction has left and leaves alone."""
        quick = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.001"}
        quick |= {"segment.ms": "100", "max.compaction.lag.ms": "100"}
        name = self.create(name, config=quick)
        deadline = time.monotonic() + 2 * TIMEOUT
        sent = 0
        while self.count(name) == sent:
            if time.monotonic() > deadline:
                msg = f"nothing of {name} was compacted"
                raise TimeoutError(msg)
            # Each round begins a segment, so that the ones before can be compacted.
            self.send(name, [b"old", b"new"], key=b"same")
            sent += 2
            time.sleep(0.2)
        self.configure(name, {"cleanup.policy": "delete"})
        return name

    def count(self, name: str) -> int:
        """Messages that can be read of the first partition."""
        settings = {
            "bootstrap.servers": self.bootstrap,
            "group.id": "count",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 10,  # the end is found by fetches that wait in vain
            "reconnect.backoff.ms": 20,
        }
        with closing(Consumer(settings)) as consumer:
            consumer.assign([TopicPartition(name, 0, 0)])
            found, deadline = 0, time.monotonic() + TIMEOUT
            while time.monotonic() < deadline:
                message = consumer.poll(0.1)
                if message is not None and message.error() is not None:
                    return found
                found += message is not None
        msg = f"{name} has no end"
        raise TimeoutError(msg)

    def send_in_transaction(
        self, name: str, values: Iterable[bytes | None], *, abort: bool = False
    ) -> None:
        """Append messages in a transaction of their own."""
        producer = self.transaction()
        for value in values:
            self.produce(producer, name, value)
        assert producer.flush(TIMEOUT) == 0
        if abort:
            producer.abort_transaction(TIMEOUT)
        else:
            producer.commit_transaction(TIMEOUT)

    def transaction(self) -> Producer:
        """A producer whose transaction has begun."""
        producer = self.producer(
            **{
                "transactional.id": f"tx-{uuid.uuid4().hex}",
                "transaction.timeout.ms": 60_000,
            }
        )
        producer.init_transactions(TIMEOUT)
        producer.begin_transaction()
        return producer

    def producer(self, **settings: Any) -> Producer:
        """A producer that waits for every acknowledgement."""
        return Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "linger.ms": 1,
                "max.in.flight.requests.per.connection": 1,
                "reconnect.backoff.ms": 20,
                "message.max.bytes": 12_000_000,
                "error_cb": lambda _: None,
                "log_level": 0,
            }
            | {key.replace("_", "."): value for key, value in settings.items()}
        )

    @staticmethod
    def produce(
        producer: Producer, name: str, value: bytes | None, **more: Any
    ) -> None:
        """Queue a message, however full the queue is."""
        more.setdefault("partition", 0)
        while True:
            try:
                producer.produce(name, value, **more)
            except BufferError:
                producer.poll(0.1)
            else:
                return
