"""Topic administration of ``kafka``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not in its stubs
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from streamfactory.backends.kafka.admin import Admin
from streamfactory.spi import MisuseError, StreamTimeout, TopicAdmin, TopicNotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa

    from streamfactory.spi import StreamConfig

_SHOWN: Final = (
    "cleanup.policy",
    "compression.type",
    "delete.retention.ms",
    "max.message.bytes",
    "message.timestamp.type",
    "min.insync.replicas",
    "retention.bytes",
    "retention.ms",
)
"""Settings of a topic that matter to readers and writers."""
_RETAINING: Final = (
    "cleanup.policy",
    "delete.retention.ms",
    "retention.bytes",
    "retention.ms",
)
"""Settings of a topic about retention."""
_PAUSE: Final = 0.02
"""Seconds between two looks for a change."""


class KafkaTopicAdmin(TopicAdmin):
    """Administration of the topics of one cluster.

    The controller answers before brokers have learned of a change. Calls wait until a
    broker answers accordingly: others may need a moment longer.
    """

    def __init__(self, config: StreamConfig) -> None:
        super().__init__(config)
        self._admin = Admin(config, "streamfactory-topics")

    def create(
        self, topic: str, schema: pa.Schema | None, partitions: int | None
    ) -> None:
        """Create a topic. Kafka stores no schema."""
        count = self.config["topic.partitions"] if partitions is None else partitions
        copies = self.config["topic.replication.factor"]
        self._call(
            f"topic {topic!r} cannot be created",
            lambda client: client.create_topics([NewTopic(topic, count, copies)]),
        )
        self._await(topic, lambda found: found > 0)

    def grow(self, topic: str, partitions: int) -> None:
        there = len(self._described(topic).partitions)
        if partitions < there:
            msg = f"topic {topic!r} has {there} partitions, more than {partitions}"
            raise MisuseError(msg, remedy="partitions can be added, not removed")
        if partitions == there:
            return
        self._call(
            f"partitions cannot be added to topic {topic!r}",
            lambda client: client.create_partitions([NewPartitions(topic, partitions)]),
        )
        self._await(topic, lambda found: found >= partitions)

    def truncate(self, topic: str, before: Mapping[int, int]) -> None:
        self._described(topic)  # without it the client looks for leaders in vain
        places = [TopicPartition(topic, number, at) for number, at in before.items()]
        self._call(
            f"topic {topic!r} cannot be truncated",
            lambda client: client.delete_records(places),
        )

    def delete(self, topic: str) -> None:
        self._call(
            f"topic {topic!r} cannot be deleted",
            lambda client: client.delete_topics([topic]),
        )
        self._await(topic, lambda found: found == 0)

    def facts(self, topic: str) -> Mapping[str, str | int]:
        described = self._described(topic)
        copies = {len(partition.replicas) for partition in described.partitions}
        return {
            "incarnation": str(described.topic_id),
            "replication": min(copies, default=0),
            **self._configured(topic, _SHOWN),
        }

    def settings(self, topic: str) -> Mapping[str, str]:
        return self._configured(topic, _RETAINING)

    def close(self) -> None:
        self._admin.close()

    def _configured(self, topic: str, keys: tuple[str, ...]) -> dict[str, str]:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        found = self._call(
            f"settings of topic {topic!r} cannot be read",
            lambda client: client.describe_configs([resource]),
        )
        settings = next(iter(found.values()))
        shown = {key: settings[key].value for key in keys if key in settings}
        return {key: str(value) for key, value in shown.items() if value is not None}

    def _await(self, topic: str, is_done: Callable[[int], bool]) -> None:
        """Wait until the partitions of a topic are as they should be.

        Args:
            topic: The topic.
            is_done: Takes their number, which is 0 if there is no topic.

        Raises:
            StreamTimeout: transient; the change was accepted, and no broker shows it.
        """
        seconds = self.config["connection.timeout.millis"] / 1000
        deadline = time.monotonic() + seconds
        while True:
            try:
                found = len(self._described(topic).partitions)
            except TopicNotFound:
                found = 0
            if is_done(found):
                return
            if time.monotonic() > deadline:
                msg = f"a change of topic {topic!r} is not visible after {seconds:g} s"
                remedy = "look at the topic in a moment: the cluster has accepted it"
                raise StreamTimeout(msg, remedy=remedy)
            time.sleep(_PAUSE)

    def _described(self, topic: str) -> Any:
        doing = f"topic {topic!r} cannot be described"
        return self._call(
            doing, lambda client: client.describe_topics(TopicCollection([topic]))
        )[topic]

    def _call(self, doing: str, ask: Any) -> dict[Any, Any]:
        return self._admin.call(doing, ask)
