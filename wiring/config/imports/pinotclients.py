"""Client properties of Kafka and Kinesis, which Pinot's files have without a prefix."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from streamfactory.wiring.config.imports.pinotnames import HIGH_LEVEL, NO_EFFECT

if TYPE_CHECKING:
    from collections.abc import Mapping

# --- Kafka ------------------------------------------------------------------------

KAFKA_DROPPED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "buffer.size": NO_EFFECT,
        "consumer.group.id": NO_EFFECT,
        "decoder.prop.format": NO_EFFECT,
        "fetcher.minBytes": NO_EFFECT,
        "fetcher.size": NO_EFFECT,
        "schema.registry.url": "it has no effect in Pinot either; the decoder has "
        "decoder.prop.schema.registry.rest.url",
        "socket.timeout": NO_EFFECT,
        "zk.broker.url": HIGH_LEVEL,
    }
)
"""Keys after ``stream.kafka.`` without an equivalent, each with the reason."""

KAFKA_CLIENT_PREFIXES: Final = ("sasl.", "security.", "ssl.")

KAFKA_CLIENT_KEYS: Final = frozenset(
    {
        "allow.auto.create.topics",
        "check.crcs",
        "client.dns.lookup",
        "client.rack",
        "connections.max.idle.ms",
        "default.api.timeout.ms",
        "enable.metrics.push",
        "exclude.internal.topics",
        "fetch.max.bytes",
        "fetch.max.wait.ms",
        "fetch.min.bytes",
        "group.id",
        "group.instance.id",
        "group.protocol",
        "group.remote.assignor",
        "heartbeat.interval.ms",
        "isolation.level",
        "max.partition.fetch.bytes",
        "max.poll.interval.ms",
        "max.poll.records",
        "metadata.max.age.ms",
        "metadata.recovery.rebootstrap.trigger.ms",
        "metadata.recovery.strategy",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "partition.assignment.strategy",
        "receive.buffer.bytes",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "request.timeout.ms",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
        "send.buffer.bytes",
        "session.timeout.ms",
        "socket.connection.setup.timeout.max.ms",
        "socket.connection.setup.timeout.ms",
    }
)
"""Properties of the Java client 2.x to 4.x, without the families above and those that
are replaced below."""

KAFKA_CLIENT_DROPPED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "auto.commit.interval.ms": "positions are committed on request, never by the "
        "client",
        "auto.offset.reset": "it is never passed to the client; for offsets out of "
        "range set out.of.range=earliest or latest",
        "bootstrap.servers": "Pinot replaces it by stream.kafka.broker.list",
        "client.id": "Pinot replaces it, and so does streamfactory",
        "config.providers": "write a secret as ${env:NAME} or ${file:PATH}",
        "enable.auto.commit": "positions are committed on request, never by the client",
        "interceptor.classes": "Java classes cannot run here",
        "key.deserializer": "messages are read as bytes; the decoder decodes them",
        "value.deserializer": "messages are read as bytes; the decoder decodes them",
    }
)
"""Properties of the Java client without an equivalent."""

# --- Kinesis ----------------------------------------------------------------------

KINESIS_KEYS: Final = frozenset(
    {
        "accessKey",
        "asyncSessionUpdateEnabled",
        "endpoint",
        "externalId",
        "iamRoleBasedAccessEnabled",
        "maxRecordsToFetch",
        "metadata.populate",
        "region",
        "requests_per_second_limit",
        "roleArn",
        "roleSessionName",
        "secretKey",
        "sessionDurationSeconds",
    }
)
"""Keys that Pinot's Kinesis plug-in reads without a prefix, and uses."""

KINESIS_DROPPED: Final[Mapping[str, str]] = MappingProxyType(
    {"shardIteratorType": NO_EFFECT}
)
"""Keys that it reads without a prefix, but does not use."""
