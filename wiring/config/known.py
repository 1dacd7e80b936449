"""Names that are known though nothing installed may bear them.

Plug-ins that somebody may ask for, each with the way to get it, and the names that
Apache Pinot's files use for what has a name here. Facts only: others act on them.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_NOBODY: Final = "no plug-in is known; docs/spi.md shows how to write one"

KNOWN_BACKENDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "kafka": "install streamfactory[kafka]",
        "kinesis": _NOBODY,
        "pulsar": _NOBODY,
        "zeromq": "install streamfactory[zeromq]",
    }
)
"""Stream types, each with one clause on how to get it."""

KNOWN_DECODERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "avro": "install streamfactory[avro]",
        "bson": _NOBODY,
        "clplog": _NOBODY,
        "json": "install streamfactory[json]",
        "protobuf": "install streamfactory[protobuf]",
    }
)
"""Decoders, each with one clause on how to get it."""

# --- Pinot's Java classes -------------------------------------------------------

PINOT_PACKAGES: Final = ("org.apache.pinot.", "com.linkedin.pinot.core.")
"""Where Pinot's own classes have lived. They moved with every plug-in version but kept
their last name, so that the package tells whose a class is and the name which."""


def pinot_name(java: str, names: Mapping[str, str]) -> str | None:
    """Our name of one of Pinot's own classes; None for anybody else's."""
    name = java.strip()
    if not name.removeprefix("shaded.").startswith(PINOT_PACKAGES):
        return None
    return names.get(name.rpartition(".")[2])


PINOT_FACTORIES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "KafkaConsumerFactory": "kafka",
        "KafkaSimpleConsumerFactory": "kafka",
        "PinotKafkaConsumerFactory": "kafka",
        "SimpleConsumerFactory": "kafka",
        "KinesisConsumerFactory": "kinesis",
        "PulsarConsumerFactory": "pulsar",
    }
)
"""Consumer factories, without their package, to stream types."""

PINOT_DECODERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "ArrowMessageDecoder": "arrow",
        "BSONMessageDecoder": "bson",
        "CLPLogMessageDecoder": "clplog",
        "CSVMessageDecoder": "csv",
        "JSONMessageDecoder": "json",
        "KafkaJSONMessageDecoder": "json",
        "KafkaConfluentSchemaRegistryJsonMessageDecoder": "json",
        "SimpleAvroMessageDecoder": "avro",
        "KafkaAvroMessageDecoder": "avro",
        "KafkaConfluentSchemaRegistryAvroMessageDecoder": "avro",
        "ProtoBufMessageDecoder": "protobuf",
        "ProtoBufCodeGenMessageDecoder": "protobuf",
        "KafkaConfluentSchemaRegistryProtoBufMessageDecoder": "protobuf",
    }
)
"""Message decoders, without their package, to decoders."""

PINOT_DECODER_LOSSES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "KafkaAvroMessageDecoder": "the 16-byte schema hash that it expects before "
        "each message is not understood here",
        "KafkaConfluentSchemaRegistryJsonMessageDecoder": "the registry's five bytes "
        "before each message are not understood here",
        "ProtoBufCodeGenMessageDecoder": "classes in a Java archive cannot be used "
        "here: give the decoder a descriptor file",
    }
)
"""What does not come along when a decoder is replaced."""

# --- Pinot's keys -----------------------------------------------------------------

_SERVERS: Final = "it is about Pinot's servers"
_RATE: Final = "Pinot's servers hold it; on Spark say maxOffsetsPerTrigger"
_NO_EFFECT: Final = "it has no effect in Pinot either"
_HIGH_LEVEL: Final = "it is of Pinot's high-level consumer, which is gone"
_JAVA: Final = "it names a Java class"

PINOT_DROPPED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "realtime.segment.flush.threshold.variance.fraction": _SERVERS,
        "realtime.segment.flush.autotune.initialRows": _SERVERS,
        "realtime.segment.commit.timeoutSeconds": _SERVERS,
        "realtime.segment.serverUploadToDeepStore": _SERVERS,
        "realtime.segment.pauseless.download.timeoutSeconds": _SERVERS,
        "segmentDownloadTimeoutMinutes": _SERVERS,
        "realtime.segment.offsetAutoReset.enable": _SERVERS,
        "realtime.segment.offsetAutoReset.offsetThreshold": _SERVERS,
        "realtime.segment.offsetAutoReset.timeThresholdSeconds": _SERVERS,
        "realtime.segment.isBackfillTopic": _SERVERS,
        "topic.consumption.rate.limit": _RATE,
        "partition.consumption.rate.limit": _RATE,
        "key.serializer": _NO_EFFECT,
        "value.serializer": _NO_EFFECT,
    }
)
"""Unprefixed keys without meaning here, each with the reason."""

PINOT_DROPPED_SUFFIXES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "partition.offset.factory.class.name": _JAVA,
        "stopOnDecodeError": "Pinot reads it unprefixed only; say decode.on.error=fail",
        "decoder.prop.recordExtractorClass": _JAVA,
        "decoder.prop.recordExtractorConfigClass": _JAVA,
    }
)
"""The same behind ``stream.<type>.``, for every type."""

PINOT_DROPPED_KAFKA: Final[Mapping[str, str]] = MappingProxyType(
    {
        "buffer.size": _NO_EFFECT,
        "consumer.group.id": _NO_EFFECT,
        "decoder.prop.format": _NO_EFFECT,
        "fetcher.minBytes": _NO_EFFECT,
        "fetcher.size": _NO_EFFECT,
        "schema.registry.url": "it has no effect in Pinot either; the decoder has "
        "decoder.prop.schema.registry.rest.url",
        "socket.timeout": _NO_EFFECT,
        "zk.broker.url": _HIGH_LEVEL,
    }
)
"""The same behind ``stream.kafka.``."""

PINOT_GROUPS: Final = (
    "Pinot reads partitions whatever it says; to read as a group say so with group.id "
    "and checkpoint.location"
)
"""Why ``consumer.type=highlevel`` does not come along."""

PINOT_HIGH_LEVEL: Final = ("hlc.", _HIGH_LEVEL)
"""What the keys of the high-level consumer begin with, and the reason."""

PINOT_TABLE_LEVEL: Final[Mapping[str, str]] = MappingProxyType(
    dict.fromkeys(
        (
            "columnMajorSegmentBuilderEnabled",
            "disasterRecoveryMode",
            "dropRecordOnPartitionMismatch",
            "enforceConsumptionInOrder",
            "oomProtection",
            "parallelSegmentConsumptionPolicy",
            "pauselessConsumptionEnabled",
            "realtimeOffsetAutoResetHandlerClass",
            "trackFilteredMessageOffsets",
            "useIdealStateToCalculatePreviousSegment",
        ),
        _SERVERS,
    )
)
"""Members of ``streamIngestionConfig`` beside the maps."""

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
"""What Pinot's Kinesis plug-in reads unprefixed, and uses."""

KINESIS_DROPPED: Final[Mapping[str, str]] = MappingProxyType(
    {"shardIteratorType": _NO_EFFECT}
)
"""What it reads unprefixed, and does not use."""

# --- Kafka's Java client ----------------------------------------------------------

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
"""Names that the Java client 2.x to 4.x knows, but for the families above and for what
is replaced below."""

KAFKA_CLIENT_DROPPED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "auto.commit.interval.ms": "positions are saved when told to, never by the "
        "client",
        "auto.offset.reset": "it is never passed to the client; for offsets that are "
        "gone say out.of.range=earliest or latest",
        "bootstrap.servers": "Pinot replaces it by stream.kafka.broker.list",
        "client.id": "Pinot replaces it, and so does streamfactory",
        "config.providers": "write a secret as ${env:NAME} or ${file:PATH}",
        "enable.auto.commit": "positions are saved when told to, never by the client",
        "interceptor.classes": "Java classes cannot run here",
        "key.deserializer": "messages are read as bytes; the decoder reads them",
        "value.deserializer": "messages are read as bytes; the decoder reads them",
    }
)
"""Names of the Java client that have no place here."""
