"""What Kafka remembers of writers: one record each, in a compacted topic.

The key of a record is ``["topic", "id of the topic", "writer"]``: a topic that was
deleted and made again has no past. The value says which instance of the writer has
claimed it, and what it committed last. A record is written in the transaction of its
epoch, as the last message, so that both are there or neither.
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

_UNREADABLE: Final = (ValueError, TypeError, KeyError, RecursionError, OverflowError)
"""What reading a record that is not ours raises; OverflowError of Infinity."""
_VERSION: Final = 1
_PARTITIONS: Final = 32
"""Of the topic of markers: an open transaction hides what comes after it in its
partition, so writers are spread. More partitions than these are not looked at."""
_SLICE: Final = 0.2
"""Seconds that one call of the client may block."""
_LARGEST: Final = 8 * 1024**2
"""Bytes of a marker, with a source position of many partitions."""


@dataclass(frozen=True, slots=True)
class Marker:
    """What is remembered of one writer."""

    instance: str
    """Which instance of the writer has claimed it."""
    claim: int = 0
    """How often it was claimed before: a later instance has the larger number."""
    commit: LastCommit | None = None
    """None where it has claimed, and committed nothing yet."""

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
        """Read one.

        Raises:
            FormatRefused: permanent; it is not ours, or of a later version.
            PositionRefused: permanent.
        """
        try:
            body = json.loads(value)
            version = body["version"]
            marker = _marker(body) if version == _VERSION else None
        except _UNREADABLE as error:
            msg = f"the record of a writer's last epoch is not ours: {value[:80]!r}"
            raise FormatRefused(msg) from error
        if marker is None:
            msg = f"the record of a writer's last epoch has version {version!r}"
            raise FormatRefused(msg)
        return marker


@dataclass(frozen=True, slots=True)
class Place:
    """Where the record of a writer is."""

    topic: str
    partition: int
    key: bytes


class Markers:
    """The compacted topic. Thread-safe.

    Args:
        topics: Answers about topics.
        settings: Answers those of a client that reads.
        name: Of the compacted topic.
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
        """Where the record of a writer is; None where there can be none.

        Raises:
            TopicNotFound: permanent; the topic that is written.
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
        """As `find`; the compacted topic is created where it is missing.

        Raises:
            TopicNotFound: permanent; the topic that is written.
            ConfigError: config; the topic of that name forgets too early.
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
        """What is remembered of a writer; None where nothing is.

        Args:
            place: Where.
            deadline: For all of it.
            settled: Wait until no open transaction of another writer can hide the
                record: after `TransactionalProducer` has initialised, the answer is
                the truth, and stays it until the next instance does so. Otherwise it
                may be of the past.

        Raises:
            StreamTimeout: transient; another writer's transaction stays open.
        """
        lane = (place.topic, place.partition)
        if settled and not self._topics.await_visible([lane], deadline):
            msg = f"another writer's open transaction hides the end of {place.topic!r}"
            where = Partition(*lane)
            remedy = "try again when it has ended: it is aborted when its time is over"
            raise StreamTimeout(msg, partition=where, remedy=remedy)
        end = self._topics.ends([lane], deadline, committed=True)[lane]
        begin = self._topics.begin(lane, deadline)
        if begin >= end:
            return None
        with closing(Consumer({**self._settings(), **_READING})) as consumer:
            # Asking by itself where to begin, the client takes half a second.
            consumer.assign([TopicPartition(*lane, begin)])
            value = _last_value(consumer, place.key, range(begin, end), deadline)
        return None if value is None else Marker.decode(value)

    def _wanted(self) -> dict[str, str]:
        """Small segments: what is compacted stays short, and is read as a whole."""
        return {
            "cleanup.policy": "compact,delete",
            "retention.ms": str(self._memory),
            "segment.bytes": str(1024**2),
            "min.cleanable.dirty.ratio": "0.1",
            "max.message.bytes": str(_LARGEST),
        }

    def _check(self, deadline: Deadline) -> None:
        """Refuse a topic that would forget writers before their time."""
        found = self._topics.settings(self._name, deadline)
        policy = found.get("cleanup.policy", "compact")
        kept = int(found.get("retention.ms", "-1"))
        if "compact" not in policy:
            what = "is not compacted: it would forget writers that go on"
            remedy = "set its cleanup.policy to compact"
        elif "delete" in policy and 0 <= kept < self._memory:
            what = f"forgets after {kept} ms, and writer.memory is {self._memory} ms"
            remedy = "raise its retention.ms, or lower writer.memory"
        else:
            return
        msg = f"the topic {self._name!r} {what}"
        raise ConfigError(msg, remedy=remedy)


_READING: Final = {
    "group.id": "streamfactory-epochs",  # the client wants one; it joins none
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "earliest",  # the first segment may go while we begin
    "fetch.wait.max.ms": 10,
}


def _last_value(
    consumer: Any, key: bytes, span: range, deadline: Deadline
) -> bytes | None:
    """The last value of a key among these offsets."""
    found: bytes | None = None
    at = span.start
    while at < span.stop:
        # Asked for many it would wait for many: one, and whatever is there besides.
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


def _marker(body: Mapping[str, Any]) -> Marker:
    return Marker(str(body["instance"]), int(body["claim"]), _commit(body))


def _commit(body: Mapping[str, Any]) -> LastCommit | None:
    if "epoch" not in body:
        return None
    position, summary = body.get("position"), body.get("summary")
    return LastCommit(
        int(body["epoch"]),
        None if position is None else Position.from_json(json.dumps(position)),
        None
        if summary is None
        else Summary(
            int(summary["rows"]), {k: int(v) for k, v in summary["sums"].items()}
        ),
    )
