"""``kafka``: topics of Apache Kafka and compatible brokers.

Needs confluent-kafka (the extra ``kafka``). Partitions and offsets are Kafka's; the
topic id is the incarnation. Messages are envelopes, so a decoder is required.
Exactly-once as source and sink, replayable while Kafka retains the messages.
"""

from __future__ import annotations

from streamfactory.backends.kafka.client_keys import CALLBACKS, CLIENT_KEYS
from streamfactory.backends.kafka.options import (
    OPTIONS,
    OWNED,
    SPARK_HINTS,
    SPARK_NAMES,
)
from streamfactory.backends.kafka.rules import check_options
from streamfactory.backends.kafka.writing_options import (
    OWNED_PRODUCER_KEYS,
    WRITE_OPTIONS,
)
from streamfactory.spi import Backend, Yields, hookimpl
from streamfactory.spi.hooks import import_later, require_installed

__all__ = ["streamfactory_backend"]

require_installed("confluent_kafka")


@hookimpl
def streamfactory_backend() -> Backend:
    """The descriptor."""
    return Backend(
        name="kafka",
        doc="Topics of Apache Kafka.",
        spi_level=1,
        check_options=check_options,
        consumer_factory=import_later(f"{__name__}.reading", "KafkaConsumerFactory"),
        producer_factory=import_later(f"{__name__}.writing", "KafkaProducerFactory"),
        topic_admin=import_later(f"{__name__}.topics", "KafkaTopicAdmin"),
        yields=Yields.ENVELOPE,
        options=(*OPTIONS, *WRITE_OPTIONS),
        translate=import_later(f"{__name__}.errors", "translate"),
        client_namespaces=frozenset({"consumer", "producer"}),
        owned_client_keys={**OWNED, **OWNED_PRODUCER_KEYS, **CALLBACKS},
        client_keys=CLIENT_KEYS,
        bare_names=SPARK_NAMES,
        bare_hints=SPARK_HINTS,
    )
