"""Metadata of topics, fetched with an admin client."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import (
    OFFSET_INVALID,
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not in its stubs
    AdminClient,
    OffsetSpec,
)

from streamfactory.backends.kafka.admin import Admin
from streamfactory.backends.kafka.client_pool import consumer_settings
from streamfactory.backends.kafka.clients import (
    Watch,
    isolation,
)
from streamfactory.backends.kafka.committed import committed_places
from streamfactory.backends.kafka.errors import failure
from streamfactory.backends.kafka.group_changes import replace_offsets
from streamfactory.spi import (
    MetadataProvider,
    PartialMetadata,
    Partition,
    PartitionInfo,
    Position,
    TopicNotFound,
    envelope_schema,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from concurrent.futures import Future

    import pyarrow as pa

    from streamfactory.spi import StreamConfig, StreamError

_LOOK: Final = 5.0
"""Seconds for the first message of an open transaction."""
_PROPAGATION: Final = 5.0
"""Seconds for which a topic that is read may be unknown to a broker: as consumers."""
_AT_ONCE: Final = 500
"""Partitions per request: the client's cost is quadratic in their number."""
_SPECS: Final[Any] = OffsetSpec  # its stubs have no types
_EARLIEST: Final = _SPECS.earliest()
_LATEST: Final = _SPECS.latest()
INTERNAL: Final = frozenset(
    {
        "__consumer_offsets",
        "__share_group_state",
        "__streamfactory_epochs",
        "__transaction_state",
    }
)
"""Internal topics. They are not listed, but can be named explicitly."""


class KafkaMetadata(MetadataProvider):
    """Partitions, bounds and topics of a cluster.

    Args:
        config: The stream's configuration.
        client_id: Client id in the brokers' logs.
    """

    def __init__(self, config: StreamConfig, client_id: str) -> None:
        self._config = config
        self._client_id = client_id
        self._admin = Admin(config, client_id)
        self._level = (
            IsolationLevel.READ_COMMITTED
            if isolation(config) == "read_committed"
            else IsolationLevel.READ_UNCOMMITTED
        )
        self._ids = frozenset(config.get("partition.ids") or ())
        self._unknown_since: float | None = None
        """When brokers began not to know a topic that a consumer reads."""

    def fetch_partitions(
        self, topics: Sequence[str], known: Collection[Partition]
    ) -> Sequence[PartitionInfo]:
        described = self._describe(topics)
        return self._infos(described, self._chosen(described))

    def fetch_bounds(
        self, partitions: Collection[Partition]
    ) -> Sequence[PartitionInfo]:
        described = self._describe({partition.topic for partition in partitions})
        existing = _partitions(described)
        return self._infos(described, [p for p in partitions if p in existing])

    def fetch_incarnations(
        self, partitions: Collection[Partition]
    ) -> Mapping[Partition, str | None]:
        try:
            described = self._describe({partition.topic for partition in partitions})
        except TopicNotFound as error:
            raise self._unknown(error) from error
        self._unknown_since = None
        existing = set(_partitions(described))
        return {
            partition: str(described[partition.topic].topic_id)
            for partition in partitions
            if partition in existing
        }

    def _unknown(self, error: TopicNotFound) -> StreamError:
        """A broker may not know a topic that another one has just created."""
        now = time.monotonic()
        self._unknown_since = self._unknown_since or now
        if now - self._unknown_since > _PROPAGATION:
            return error
        return PartialMetadata(error.what)

    def fetch_partition_count(self, topic: str) -> int:
        return len(self._chosen(self._describe([topic])))

    def fetch_offsets_at(
        self, timestamp_ms: int, partitions: Collection[Partition]
    ) -> Mapping[Partition, int | None]:
        spec = _SPECS.for_timestamp(timestamp_ms)
        [found] = self._offsets(partitions, [(spec, self._level)])
        return {p: None if offset < 0 else offset for p, offset in found.items()}

    def fetch_schema(self, topic: str) -> pa.Schema:
        return envelope_schema()

    def fetch_topics(self) -> Sequence[str]:
        timeout = self._config["connection.timeout.millis"] / 1000
        doing = "topics cannot be listed"
        names = self._admin.call(doing, lambda c: _listed(c, timeout))["names"]
        return sorted(set(names) - INTERNAL)

    def close(self) -> None:
        self._admin.close()

    def _describe(self, topics: Collection[str]) -> dict[str, Any]:
        if not topics:
            return {}
        names = sorted(topics)
        shown = ", ".join(map(repr, names[:3])) + (", ..." if len(names) > 3 else "")
        doing = f"topic{'s' * (len(names) > 1)} {shown} cannot be described"
        return self._admin.call(
            doing, lambda c: c.describe_topics(TopicCollection(names))
        )

    def _chosen(self, described: Mapping[str, Any]) -> list[Partition]:
        existing = _partitions(described)
        if not self._ids:
            return existing
        for topic in described:
            missing = sorted(self._ids - {p.id for p in existing if p.topic == topic})
            if missing:
                msg = f"topic {topic!r} has no partition {missing[0]}"
                remedy = f"remove it from stream.{self._config.type}.partition.ids"
                raise TopicNotFound(msg, remedy=remedy)
        return [partition for partition in existing if partition.id in self._ids]

    def publish_position(self, group: str, position: Position) -> None:
        offsets = committed_places(position)
        wanted = [ConsumerGroupTopicPartitions(group, offsets)]
        doing = f"offsets of group {group!r} cannot be committed"

        def ask(client: AdminClient) -> Mapping[Any, Future[Any]]:
            asked: Mapping[Any, Future[Any]] = client.alter_consumer_group_offsets(
                wanted
            )
            return asked

        for answer in self._admin.call(doing, ask).values():
            for one in answer.topic_partitions:
                if one.error is not None:
                    raise failure(one.error, doing)

    def replace_position(self, group: str, before: Position, after: Position) -> bool:
        doing = f"offsets of group {group!r} cannot be committed"
        if self.fetch_members(group, doing):
            raise failure(KafkaError(KafkaError.NON_EMPTY_GROUP), doing)
        return replace_offsets(self._config, self._client_id, group, before, after)

    def fetch_members(self, group: str, doing: str) -> set[str]:
        """The ids of a group's members.

        Args:
            group: The group.
            doing: What cannot be done without them, for errors.
        """
        described = self._admin.call(
            doing, lambda c: c.describe_consumer_groups([group])
        )
        return {member.member_id for member in described[group].members}

    def fetch_written_at(self, partition: Partition, offset: int) -> int | None:
        settings = consumer_settings(self._config, "streamfactory-waiting", Watch())
        settings["isolation.level"] = "read_uncommitted"
        settings["enable.partition.eof"] = False
        client = Consumer(settings)
        try:
            client.assign([TopicPartition(partition.topic, partition.id, offset)])
            message = client.poll(_LOOK)
        finally:
            client.close()
        if message is None or message.error() is not None:
            return None
        kind, millis = message.timestamp()
        return None if kind == TIMESTAMP_NOT_AVAILABLE else int(millis)

    def fetch_groups(self) -> Sequence[str]:
        timeout = self._config["connection.timeout.millis"] / 1000
        doing = "groups cannot be listed"

        def ask(client: AdminClient) -> Mapping[Any, Future[Any]]:
            return {"groups": client.list_consumer_groups(request_timeout=timeout)}

        listed = self._admin.call(doing, ask)["groups"]
        for error in listed.errors:
            raise failure(error, doing, where=self._admin.where) from error
        return sorted(group.group_id for group in listed.valid)

    def fetch_positions(self, groups: Collection[str]) -> Mapping[str, Position]:
        doing = f"offsets of {len(groups)} groups cannot be read"
        if len(groups) == 1:
            doing = f"offsets of group {next(iter(groups))!r} cannot be read"

        def ask(client: AdminClient) -> Mapping[Any, Future[Any]]:
            asked: dict[Any, Future[Any]] = {}
            for group in groups:
                wanted = [ConsumerGroupTopicPartitions(group)]
                asked.update(client.list_consumer_group_offsets(wanted))
            return asked

        found = {}
        for group, answer in self._admin.call(doing, ask).items():
            for place in answer.topic_partitions:
                if place.error is not None:
                    raise failure(place.error, doing, where=self._admin.where)
            found[group] = Position(
                {
                    Partition(place.topic, place.partition): place.offset
                    for place in answer.topic_partitions
                    if place.offset >= 0
                }
            )
        return found

    def _infos(
        self, described: Mapping[str, Any], partitions: Sequence[Partition]
    ) -> list[PartitionInfo]:
        if not partitions:
            return []
        every = IsolationLevel.READ_UNCOMMITTED
        wanted = [(_EARLIEST, self._level), (_LATEST, self._level), (_LATEST, every)]
        if self._level == every:
            del wanted[2]
        earliest, latest, *more = self._offsets(partitions, wanted)
        written = more[0] if more else {}
        incarnations = {topic: str(one.topic_id) for topic, one in described.items()}
        return [
            PartitionInfo(
                p,
                # The requests are concurrent, so that one may be older than another.
                min(earliest[p], latest[p]),
                latest[p],
                incarnation=incarnations[p.topic],
                written=max(written[p], latest[p]) if written else None,
            )
            for p in partitions
        ]

    def _offsets(
        self,
        partitions: Collection[Partition],
        wanted: Sequence[tuple[Any, IsolationLevel]],
    ) -> list[dict[Partition, int]]:
        """Offsets of the partitions, by concurrent requests.

        Args:
            partitions: The partitions.
            wanted: Which offset, and at which isolation level; one for each result.
        """
        places = [TopicPartition(p.topic, p.id) for p in partitions]
        topics = sorted({p.topic for p in partitions})
        doing = f"offsets of {', '.join(map(repr, topics[:3]))} cannot be listed"

        def ask(client: AdminClient) -> Mapping[Any, Future[Any]]:
            found: dict[Any, Future[Any]] = {}
            for number, (spec, level) in enumerate(wanted):
                for at in range(0, len(places), _AT_ONCE):
                    some = dict.fromkeys(places[at : at + _AT_ONCE], spec)
                    asked = client.list_offsets(some, isolation_level=level)
                    for tp, future in asked.items():
                        found[number, tp.topic, tp.partition] = future
            return found

        answers = self._admin.call(doing, ask, lambda one: one.offset != OFFSET_INVALID)
        return [
            {p: answers[number, p.topic, p.id].offset for p in partitions}
            for number in range(len(wanted))
        ]


def _partitions(described: Mapping[str, Any]) -> list[Partition]:
    return [
        Partition(topic, partition.id)
        for topic, description in described.items()
        for partition in description.partitions
    ]


def _listed(client: AdminClient, timeout: float) -> Mapping[str, Future[list[str]]]:
    """List topics in a thread, because the call does not report why it waits."""
    from concurrent.futures import Future

    answer: Future[list[str]] = Future()

    def ask() -> None:
        try:
            answer.set_result(list(client.list_topics(timeout=timeout).topics))
        except Exception as error:  # noqa: BLE001 - raised where it is waited for
            answer.set_exception(error)

    threading.Thread(target=ask, daemon=True).start()
    return {"names": answer}
