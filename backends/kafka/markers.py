"""The epoch markers of writers: one record each, in a compacted topic.

The key of a record is ``["topic", "id of the topic", "writer"]``, so a recreated topic
has no markers. The value names the instance that has claimed the writer, and its last
commit. A record is the last message in the transaction of its epoch, so both are
committed or neither.
"""

from __future__ import annotations

import json
import zlib
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from streamfactory.arrowlog.decoding import (
    InvalidValue,
    mapping_of,
    members_of,
    optional,
    text,
    whole,
)
from streamfactory.spi import (
    ConfigError,
    FormatRefused,
    LastCommit,
    Partition,
    Position,
    StreamTimeout,
    Summary,
    TopicNotFound,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from streamfactory.backends.kafka.producing import Deadline
    from streamfactory.backends.kafka.writing_topics import WrittenTopics

_UNREADABLE: Final = (InvalidValue, ValueError, TypeError, KeyError, RecursionError)
"""Errors of parsing a foreign record."""
_VERSION: Final = 1
_PARTITIONS: Final = 32
"""Partitions of the topic of markers. An open transaction hides later records of its
partition, so writers are spread. Further partitions are ignored."""
_SLICE: Final = 0.2
"""Seconds that one call of the client may block."""
_LARGEST: Final = 8 * 1024**2
"""Maximum bytes of a marker, whose source position may have many partitions."""


@dataclass(frozen=True, slots=True)
class Marker:
    """The marker of one writer."""

    instance: str
    """The instance that has claimed the writer."""
    claim: int = 0
    """Number of the claim; a later instance has a larger one."""
    commit: LastCommit | None = None
    """The last commit; None if nothing was committed yet."""

    def encode(self) -> bytes:
        """As JSON."""
        body: dict[str, Any] = {
            "version": _VERSION,
            "instance": self.instance,
            "claim": self.claim,
        }
        if self.commit is not None:
            body["epoch"] = self.commit.epoch
            position, summary = self.commit.source_position, self.commit.summary
            if position is not None:
                body["position"] = json.loads(position.to_json())
            if summary is not None:
                body["summary"] = {"rows": summary.rows, "sums": dict(summary.sums)}
        return json.dumps(body, sort_keys=True, separators=(",", ":")).encode()

    @staticmethod
    def decode(value: bytes) -> Marker:
        """Parse a marker.

        Raises:
            FormatRefused: permanent; not a marker, or a newer version.
            PositionRefused: permanent.
        """
        try:
            body = json.loads(value)
            version = body["version"]
            marker = _marker(body) if version == _VERSION else None
        except _UNREADABLE as error:
            msg = (
                "the record of a writer's last epoch is not an epoch marker: "
                f"{value[:80]!r}"
            )
            raise FormatRefused(msg) from error
        if marker is None:
            msg = (
                "the record of a writer's last epoch has the unsupported version "
                f"{version!r}"
            )
            raise FormatRefused(msg)
        return marker


@dataclass(frozen=True, slots=True)
class Place:
    """Location of the marker of a writer."""

    topic: str
    partition: int
    key: bytes


class Markers:
    """The compacted topic of markers. Thread-safe.

    Args:
        topics: Queries about topics.
        settings: Returns the settings of a consumer.
        name: Name of the compacted topic.
        memory: Milliseconds for which an idle writer is remembered.
    """

    def __init__(
        self,
        topics: WrittenTopics,
        settings: Callable[[], Mapping[str, Any]],
        name: str,
        memory: int,
    ) -> None:
        self._topics = topics
        self._settings = settings
        self._name = name
        self._memory = memory

    def find(self, topic: str, writer: str, deadline: Deadline) -> Place | None:
        """Location of a writer's marker; None if the topic of markers does not exist.

        Raises:
            TopicNotFound: permanent; the target topic does not exist.
        """
        key = json.dumps([topic, self._topics.facts(topic, deadline).id, writer])
        try:
            count = self._topics.facts(self._name, deadline).partitions
        except TopicNotFound:
            return None
        encoded = key.encode()
        partition = zlib.crc32(encoded) % min(count, _PARTITIONS)
        return Place(self._name, partition, encoded)

    def ensure(self, topic: str, writer: str, deadline: Deadline) -> Place:
        """As `find`, but creates the compacted topic if it is missing.

        Raises:
            TopicNotFound: permanent; the target topic does not exist.
            ConfigError: config; the retention of the compacted topic is too short.
        """
        place = self.find(topic, writer, deadline)
        while place is None:
            self._topics.create(self._name, _PARTITIONS, self._wanted(), deadline)
            deadline.check(f"creating the topic {self._name!r}")
            place = self.find(topic, writer, deadline)
        self._check(deadline)
        return place

    def read(
        self, place: Place, deadline: Deadline, *, settled: bool = False
    ) -> Marker | None:
        """The marker of a writer; None if there is none.

        Args:
            place: Location of the marker.
            deadline: For the whole call.
            settled: Wait until no open transaction of another writer can hide the
                marker. After `TransactionalProducer` has initialised, the result is
                then current until the next instance initialises. Otherwise it may be
                stale.

        Raises:
            StreamTimeout: transient; another writer's transaction stays open.
        """
        where = (place.topic, place.partition)
        if settled and not self._topics.await_visible([where], deadline):
            msg = f"another writer's open transaction hides the end of {place.topic!r}"
            partition = Partition(*where)
            remedy = (
                "try again later: the broker aborts the transaction after its timeout"
            )
            raise StreamTimeout(msg, partition=partition, remedy=remedy)
        end = self._topics.ends([where], deadline, committed=True)[where]
        begin = self._topics.begin(where, deadline)
        if begin >= end:
            return None
        with closing(Consumer({**self._settings(), **_READING})) as consumer:
            # With a known start offset the client saves a lookup of half a second.
            consumer.assign([TopicPartition(*where, begin)])
            value = _last_value(consumer, place.key, range(begin, end), deadline)
        return None if value is None else Marker.decode(value)

    def _wanted(self) -> dict[str, str]:
        """Small segments keep the compacted topic short: it is read completely."""
        return {
            "cleanup.policy": "compact,delete",
            "retention.ms": str(self._memory),
            "segment.bytes": str(1024**2),
            "min.cleanable.dirty.ratio": "0.1",
            "max.message.bytes": str(_LARGEST),
        }

    def _check(self, deadline: Deadline) -> None:
        """Refuse a topic whose retention would drop active writers."""
        found = self._topics.settings(self._name, deadline)
        policy = found.get("cleanup.policy", "compact")
        kept = int(found.get("retention.ms", "-1"))
        if "compact" not in policy:
            what = "is not compacted: it would lose the markers of active writers"
            remedy = "set its cleanup.policy to compact"
        elif "delete" in policy and 0 <= kept < self._memory:
            memory = f"writer.memory.millis={self._memory}"
            what = f"has retention.ms={kept}, less than {memory}"
            remedy = "increase its retention.ms, or decrease writer.memory.millis"
        else:
            return
        msg = f"the topic {self._name!r} {what}"
        raise ConfigError(msg, remedy=remedy)


_READING: Final = {
    "group.id": "streamfactory-epochs",  # required by the client; no group is joined
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "earliest",  # the first segment may be deleted meanwhile
    "fetch.wait.max.ms": 10,
}


def _last_value(
    consumer: Any, key: bytes, span: range, deadline: Deadline
) -> bytes | None:
    """The last value of a key among these offsets."""
    found: bytes | None = None
    at = span.start
    while at < span.stop:
        # `consume(n)` waits for n messages: poll one, then take what is queued.
        first = consumer.poll(_SLICE)
        more = consumer.consume(500, 0) if first is not None else []
        for message in [first, *more] if first is not None else []:
            error = message.error()
            if error is None:
                at = message.offset() + 1
                if message.key() == key:
                    found = message.value()
            elif error.code() == KafkaError._PARTITION_EOF:
                at = max(at, message.offset())
            elif not error.retriable():
                raise KafkaException(error)
        deadline.check("reading the topic of epochs")
    return found


_ANY: Final = whole(-(1 << 128), 1 << 128)
_SUMMARY: Final = members_of({"rows": whole(), "sums": mapping_of(text, _ANY)})


def _marker(body: Mapping[str, Any]) -> Marker:
    claim = whole()(body["claim"])
    return Marker(text(body["instance"]), claim, _commit(body))


def _commit(body: Mapping[str, Any]) -> LastCommit | None:
    if "epoch" not in body:
        return None
    position, summary = body.get("position"), optional(_SUMMARY)(body.get("summary"))
    return LastCommit(
        whole()(body["epoch"]),
        None if position is None else Position.from_json(json.dumps(position)),
        None if summary is None else Summary(**summary),
    )
