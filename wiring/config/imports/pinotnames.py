"""Names in Apache Pinot's files: classes, and keys without an equivalent."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

PINOT_PACKAGES: Final = ("org.apache.pinot.", "com.linkedin.pinot.core.")
"""Packages of Pinot's classes. They changed with every plug-in version, but the class
names did not: the package identifies Pinot's classes, and the name identifies the
class."""


def pinot_name(java: str, names: Mapping[str, str]) -> str | None:
    """Return our name of one of Pinot's classes; None for other classes."""
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
        "each message is not supported",
        "ProtoBufCodeGenMessageDecoder": "classes in a Java archive cannot be used "
        "here: configure a descriptor file for the decoder",
    }
)
"""Features of Pinot's decoder that its replacement does not have."""

# --- Pinot's keys -----------------------------------------------------------------

_SERVERS: Final = "it is about Pinot's servers"
_RATE: Final = "it limits Pinot's servers; here set max.rows.per.second"
NO_EFFECT: Final = "it has no effect in Pinot either"
HIGH_LEVEL: Final = "it is of Pinot's high-level consumer, which was removed"
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
        "key.serializer": NO_EFFECT,
        "value.serializer": NO_EFFECT,
    }
)
"""Keys without a prefix and without an equivalent, each with the reason."""

PINOT_DROPPED_SUFFIXES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "partition.offset.factory.class.name": _JAVA,
        "stopOnDecodeError": "Pinot reads it without a prefix only; set "
        "decode.on.error=fail",
        "decoder.prop.recordExtractorClass": _JAVA,
        "decoder.prop.recordExtractorConfigClass": _JAVA,
    }
)
"""The same behind ``stream.<type>.``, for every type."""

PINOT_GROUPS: Final = (
    "Pinot ignores it and reads partitions; to read as a member of a group set "
    "group.id "
    "and checkpoint.location"
)
"""Why ``consumer.type=highlevel`` is not imported."""

PINOT_HIGH_LEVEL: Final = ("hlc.", HIGH_LEVEL)
"""Prefixes of the high-level consumer's keys, with the reason."""

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
"""Keys of ``streamIngestionConfig`` other than the stream configs."""
