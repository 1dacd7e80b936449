"""The broker of Kafka that a benchmark measures, and topics with messages."""

from __future__ import annotations

import os
import tempfile
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not in its stubs
    AdminClient,
    NewTopic,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def broker() -> Iterator[str]:
    """The one that ``KAFKA_BOOTSTRAP`` names, or one that is started here."""
    given = os.environ.get("KAFKA_BOOTSTRAP")
    if given:
        yield given
        return
    from tests.kafka.broker import Cluster

    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        Cluster(Path(folder)) as cluster,
    ):
        yield cluster.bootstrap


def filled(
    bootstrap: str, count: int, value_of: Callable[[int], bytes], partitions: int = 1
) -> str:
    """A topic with so many messages, dealt out to its partitions."""
    topic = f"bench-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(20)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    for number in range(count):
        value = value_of(number)
        if number % 10_000 == 0:
            producer.poll(0)
        while True:
            try:
                producer.produce(
                    topic, value, b"key-0001", partition=number % partitions
                )
            except BufferError:
                producer.poll(0.1)
            else:
                break
    producer.flush(60)
    return topic
