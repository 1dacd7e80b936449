"""``kafka``: topics of Apache Kafka and compatible brokers.

Needs confluent-kafka (the extra ``kafka``). Partitions and offsets are Kafka's; the
topic id is the incarnation. Messages are envelopes, so a decoder is required.
Exactly-once as source and sink, replayable while Kafka retains the messages.
"""

from __future__ import annotations

from streamfactory.backends.kafka.clients import CLIENT_KEYS
from streamfactory.backends.kafka.errors import translate
from streamfactory.backends.kafka.options import (
    OPTIONS,
    OWNED,
    SPARK_HINTS,
    SPARK_NAMES,
)
from streamfactory.backends.kafka.reading import KafkaConsumerFactory
from streamfactory.backends.kafka.rules import check_options
from streamfactory.backends.kafka.topics import KafkaTopicAdmin
from streamfactory.backends.kafka.writing import KafkaProducerFactory
from streamfactory.backends.kafka.writing_options import (
    OWNED_PRODUCER_KEYS,
    WRITE_OPTIONS,
)
from streamfactory.spi import Backend, Yields, hookimpl

__all__ = [
    "KafkaConsumerFactory",
    "KafkaProducerFactory",
    "KafkaTopicAdmin",
    "streamfactory_backend",
]


@hookimpl
def streamfactory_backend() -> Backend:
    """The descriptor."""
    return Backend(
        name="kafka",
        doc="Topics of Apache Kafka.",
        spi_level=1,
        check_options=check_options,
        consumer_factory=KafkaConsumerFactory,
        producer_factory=KafkaProducerFactory,
        topic_admin=KafkaTopicAdmin,
        yields=Yields.ENVELOPE,
        options=(*OPTIONS, *WRITE_OPTIONS),
        translate=translate,
        client_namespaces=frozenset({"consumer", "producer"}),
        owned_client_keys={**OWNED, **OWNED_PRODUCER_KEYS},
        client_keys=CLIENT_KEYS,
        bare_names=SPARK_NAMES,
        bare_hints=SPARK_HINTS,
    )
