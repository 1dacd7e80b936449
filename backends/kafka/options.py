"""Options of ``kafka``, with Pinot's names where it has them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from streamfactory.spi import (
    FUNCTION,
    INTEGER,
    PERIOD,
    Option,
    OptionType,
    choice,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

READING: Final = "native.reading"
WRITING: Final = "native.writing"
TOKEN: Final = "sasl.oauthbearer.token"  # noqa: S105 - the name of an option
AWS: Final = "aws-msk-iam"
SIGNER: Final = "aws_msk_iam_sasl_signer"
"""The package of AWS that signs."""
INSTALL_AWS: Final = "pip install 'streamfactory[kafka,msk]'"
REGION: Final = "aws.region"
OFF: Final = "off"
AUTO: Final = "auto"
REQUIRED: Final = "required"

_READ: Final = frozenset({"read", "spark"})
_MOST_IDS: Final = 10_000
_RANGE: Final = re.compile(r"([0-9]{1,10})(?:-([0-9]{1,10}))?")


def _partition_ids(text: str) -> tuple[int, ...]:
    found: set[int] = set()
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            msg = "is not a list of partitions: write 0,2,5 or 0-399"
            raise ValueError(msg)
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            msg = f"has a range whose end is before its start: {part.strip()}"
            raise ValueError(msg)
        if last - first >= _MOST_IDS or len(found) + last - first >= _MOST_IDS:
            msg = f"names more than {_MOST_IDS} partitions"
            raise ValueError(msg)
        found.update(range(first, last + 1))
    return tuple(sorted(found))


def _brokers_problem(text: str) -> str | None:
    hint = "set consumer.prop.sasl.username and consumer.prop.sasl.password"
    return f"contains credentials: {hint}" if "@" in text else None


def _token_problem(text: str) -> str | None:
    if ":" in text or text == AWS:
        return None
    return f"{text!r} is neither {AWS} nor a function as module:function"


PARTITION_IDS: Final = OptionType(
    "list of numbers and ranges", _partition_ids, {"type": "string"}
)

_UNUSED: Final = "Pinot reads it, but does not use it"

OPTIONS: Final = (
    Option(
        "broker.list",
        "Bootstrap brokers, as host:port,host:port.",
        required=True,
        validator=_brokers_problem,
        aliases=("bootstrap.servers",),
        example="localhost:9092",
    ),
    Option(
        "isolation.level",
        "Isolation level of readers: whether they see rows of open and aborted "
        "transactions. Default: consumer.prop.isolation.level, else read_committed.",
        choice("read_committed", "read_uncommitted"),
        applies=_READ,
    ),
    Option(
        "partition.ids",
        "Partitions to read, as 0,2,5 or 0-399; all by default.",
        PARTITION_IDS,
        applies=_READ,
        example="0-3",
    ),
    Option(
        "broker.timeout.millis",
        "Time for which all brokers may be unreachable before reading fails.",
        PERIOD,
        default="30000",
        minimum=1,
    ),
    Option(
        READING,
        "Whether the package streamfactory-native copies messages into Arrow batches: "
        "auto uses it where it is installed and fits, required fails without it.",
        choice(AUTO, OFF, REQUIRED),
        default=AUTO,
        applies=_READ,
    ),
    Option(
        "topic.partitions",
        "Default number of partitions of a created topic.",
        INTEGER,
        default="1",
        minimum=1,
        maximum=10_000,
    ),
    Option(
        "topic.replication.factor",
        "Replication factor of a created topic; -1 for the broker's default.",
        INTEGER,
        default="-1",
        minimum=-1,
        maximum=32_767,
    ),
    Option(
        TOKEN,
        "Source of tokens for OAUTHBEARER: aws-msk-iam, or a Python function as "
        "module:function, which requires --allow-class-paths.",
        FUNCTION,
        validator=_token_problem,
        example=AWS,
    ),
    Option(
        REGION,
        "Region of Amazon MSK, for aws-msk-iam; by default that of the environment.",
        example="eu-central-1",
    ),
    Option(
        "ssl.server.certificate",
        "CA certificate of the brokers, X.509 in base64; from Pinot.",
    ),
    Option(
        "ssl.client.certificate",
        "Client certificate, X.509 in base64; from Pinot.",
    ),
    Option(
        "ssl.client.key",
        "Client key, PKCS#8 in base64; from Pinot.",
        secret=True,
    ),
    Option(
        "ssl.server.certificate.type",
        "Type of the CA certificate.",
        choice("X.509"),
        default="X.509",
    ),
    Option(
        "ssl.client.key.algorithm",
        "Algorithm of the client key.",
        no_effect="the key contains its algorithm",
    ),
    *(
        Option(key, "A setting of old clients.", no_effect=_UNUSED)
        for key in (
            "buffer.size",
            "fetcher.minBytes".lower(),
            "fetcher.size",
            "socket.timeout",
        )
    ),
)

_SERIALIZERS: Final = "messages are bytes: set a decoder"
_ASSIGNED: Final = "offsets are managed by the reader and committed explicitly"

OWNED: Final[Mapping[str, str]] = {
    "bootstrap.servers": "set stream.kafka.broker.list",
    "metadata.broker.list": "set stream.kafka.broker.list",
    "auto.offset.reset": "set startingOffsets for a new start, out.of.range for a loss",
    "client.id": "streamfactory sets the id of its clients",
    "enable.auto.commit": _ASSIGNED,
    "auto.commit.enable": _ASSIGNED,
    "enable.auto.offset.store": _ASSIGNED,
    "enable.partition.eof": "the state of a batch reports the end of a partition",
    "go.delivery.reports": "it is a property of another client",
    "key.deserializer": _SERIALIZERS,
    "value.deserializer": _SERIALIZERS,
    "key.serializer": _SERIALIZERS,
    "value.serializer": _SERIALIZERS,
    "interceptor.classes": "Java classes are not supported",
    "transactional.id": "it is derived from the writer id",
    "enable.idempotence": "writers are always idempotent",
}
"""Client properties that a user must not set, and what to set instead."""

SPARK_NAMES: Final[Mapping[str, str]] = {
    "kafkaconsumer.polltimeoutms": "fetch.timeout.millis"
}
"""Options of Spark's Kafka source, in lower case, with their equivalent."""

SPARK_HINTS: Final[Mapping[str, str]] = {
    "fetchoffset.numretries": "set retry.max.attempts, which counts the first attempt "
    "too",
    "fetchoffset.retryintervalms": "set retry.initial.millis, which doubles with each "
    "attempt",
    "groupidprefix": "set kafka.group.id; progress.group publishes the progress of a "
    "query",
}
"""Options with a different meaning, and the closest equivalent."""
