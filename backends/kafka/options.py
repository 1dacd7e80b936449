"""The options of ``kafka``: Pinot's words where it has them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from streamfactory.spi import (
    INTEGER,
    PERIOD,
    Option,
    OptionType,
    choice,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

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
            msg = f"has a range that ends before it begins: {part.strip()}"
            raise ValueError(msg)
        if last - first >= _MOST_IDS or len(found) + last - first >= _MOST_IDS:
            msg = f"names more than {_MOST_IDS} partitions"
            raise ValueError(msg)
        found.update(range(first, last + 1))
    return tuple(sorted(found))


def _brokers_problem(text: str) -> str | None:
    hint = "say sasl.username and sasl.password, with consumer.prop."
    return f"holds credentials: {hint}" if "@" in text else None


PARTITION_IDS: Final = OptionType(
    "list of numbers and ranges", _partition_ids, {"type": "string"}
)

_UNUSED: Final = "Pinot reads it and does nothing with it"

OPTIONS: Final = (
    Option(
        "broker.list",
        "Brokers to begin with, as host:port,host:port; they name the others.",
        required=True,
        validator=_brokers_problem,
        aliases=("bootstrap.servers",),
        example="localhost:9092",
    ),
    Option(
        "isolation.level",
        "Whether rows of open and aborted transactions are read; read_committed where "
        "neither this nor consumer.prop.isolation.level is set.",
        choice("read_committed", "read_uncommitted"),
        applies=_READ,
    ),
    Option(
        "partition.ids",
        "Partitions to read, as 0,2,5 or 0-399; all where it is not set.",
        PARTITION_IDS,
        applies=_READ,
        example="0-3",
    ),
    Option(
        "broker.timeout.millis",
        "How long all brokers may be unreachable before reading fails.",
        PERIOD,
        default="30000",
        minimum=1,
    ),
    Option(
        "topic.partitions",
        "Partitions of a topic that is made here, where nothing else says how many.",
        INTEGER,
        default="1",
        minimum=1,
        maximum=10_000,
    ),
    Option(
        "topic.replication.factor",
        "Copies of each partition of a topic that is made here; -1 for the broker's "
        "default.",
        INTEGER,
        default="-1",
        minimum=-1,
        maximum=32_767,
    ),
    Option(
        "ssl.server.certificate",
        "Pinot's word: who signed the brokers' certificates, base64 of X.509.",
    ),
    Option(
        "ssl.client.certificate",
        "Pinot's word: own certificate, base64 of X.509.",
    ),
    Option(
        "ssl.client.key",
        "Pinot's word: own key, base64 of PKCS#8.",
        secret=True,
    ),
    Option(
        "ssl.server.certificate.type",
        "Kind of that certificate.",
        choice("X.509"),
        default="X.509",
    ),
    Option(
        "ssl.client.key.algorithm",
        "Kind of that key.",
        no_effect="the key itself says its kind",
    ),
    *(
        Option(key, "A size or time of old clients.", no_effect=_UNUSED)
        for key in (
            "buffer.size",
            "fetcher.minBytes".lower(),
            "fetcher.size",
            "socket.timeout",
        )
    ),
)

_SERIALIZERS: Final = "messages are bytes here: name a decoder"
_ASSIGNED: Final = "positions are kept by who reads, and saved when told to"

OWNED: Final[Mapping[str, str]] = {
    "bootstrap.servers": "say stream.kafka.broker.list",
    "metadata.broker.list": "say stream.kafka.broker.list",
    "auto.offset.reset": "say startingOffsets for a new start, out.of.range for a loss",
    "client.id": "streamfactory names its clients",
    "enable.auto.commit": _ASSIGNED,
    "auto.commit.enable": _ASSIGNED,
    "enable.auto.offset.store": _ASSIGNED,
    "enable.partition.eof": "ends of partitions are told by the state of a batch",
    "go.delivery.reports": "it is of another client",
    "key.deserializer": _SERIALIZERS,
    "value.deserializer": _SERIALIZERS,
    "key.serializer": _SERIALIZERS,
    "value.serializer": _SERIALIZERS,
    "interceptor.classes": "Java classes cannot run here",
    "transactional.id": "it follows from the writer id",
    "enable.idempotence": "writers are always idempotent",
}
"""Client keys that a user may not set, with what to do instead."""

SPARK_NAMES: Final[Mapping[str, str]] = {
    "kafkaconsumer.polltimeoutms": "fetch.timeout.millis"
}
"""Bare options of Spark's own Kafka source, in lower case, by what they are here."""

SPARK_HINTS: Final[Mapping[str, str]] = {
    "fetchoffset.numretries": "say retry.max.attempts, which counts the first attempt "
    "too",
    "fetchoffset.retryintervalms": "say retry.initial.millis, which doubles with each "
    "attempt",
    "groupidprefix": "say kafka.group.id; a group that is told where the query stands "
    "is progress.group",
}
"""Those that mean something else, with what comes close."""
