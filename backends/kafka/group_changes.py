"""Changes the committed offsets of a group that has no members, for commands.

The change is made by a member: the coordinator assigns a partition to one member at a
time, and refuses what a member commits after its partitions were assigned to others.
So of two changes at once, each of which compares before it commits, one is made.
"""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from streamfactory.backends.kafka.clients import Watch, brokers, refused
from streamfactory.backends.kafka.committed import committed_places
from streamfactory.backends.kafka.errors import failure
from streamfactory.backends.kafka.group_settings import member_settings
from streamfactory.spi import Partition, StreamTimeout

if TYPE_CHECKING:
    from streamfactory.spi import Position, StreamConfig

_SLICE: Final = 0.1
_SUPERSEDED: Final = frozenset(
    {
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.STALE_MEMBER_EPOCH,
        KafkaError.UNKNOWN_MEMBER_ID,
    }
)
"""Errors of a commit after the partitions were assigned to others."""


def replace_offsets(
    config: StreamConfig, client_id: str, group: str, before: Position, after: Position
) -> bool:
    """Commit offsets of a group as its only member, if its offsets are ``before``.

    Args:
        config: The stream's configuration.
        client_id: Client id in the brokers' logs.
        group: The group; the caller has seen that it has no members.
        before: Expected offsets; those of partitions that vanished are not compared.
        after: The offsets to commit.

    Returns:
        False if the offsets are others, or the group has another member: then nothing
        is committed.

    Raises:
        StreamTimeout: transient; the coordinator did not assign the partitions in time.
        StreamError: Of the broker.
    """
    watch = Watch()
    settings = member_settings(config, client_id, group, watch)
    settings.pop("group.instance.id", None)  # that of a member which is stopped
    settings["queued.min.messages"] = 1  # no message is used
    try:
        client = Consumer(settings)
    except (KafkaException, ValueError, TypeError) as error:
        raise refused(error, config) from error
    with closing(client):
        return _Change(config, group, client, watch).make(before, after)


class _Change:
    """One change. ``connection.timeout`` bounds its calls and the wait."""

    def __init__(
        self, config: StreamConfig, group: str, client: Consumer, watch: Watch
    ) -> None:
        self._client = client
        self._watch = watch
        self._where = brokers(config)
        self._timeout = config["connection.timeout.millis"] / 1000
        self._doing = f"offsets of group {group!r} cannot be committed"
        self._assigned: set[Partition] | None = None

    def make(self, before: Position, after: Position) -> bool:
        try:
            wanted = self._existing(before)
            if not self._joined({p.topic for p in wanted}, wanted):
                return False
            committed = self._client.committed(
                [TopicPartition(p.topic, p.id) for p in wanted], timeout=self._timeout
            )
            for place in committed:
                if place.error is not None:
                    raise failure(place.error, self._doing, where=self._where)
            found = {_partition(place): place.offset for place in committed}
            if found != {p: before[p] for p in wanted}:
                return False
            return self._commit(after)
        except KafkaException as error:
            raise failure(error, self._doing, where=self._where) from error

    def _existing(self, position: Position) -> list[Partition]:
        topics = self._client.list_topics(timeout=self._timeout).topics
        return [
            p
            for p in sorted(position)
            if p.topic in topics and p.id in topics[p.topic].partitions
        ]

    def _joined(self, topics: set[str], wanted: list[Partition]) -> bool:
        """Whether all partitions were assigned, so that no other member has one."""
        self._client.subscribe(sorted(topics), on_assign=self._note)
        deadline = time.monotonic() + self._timeout
        while self._assigned is None:
            self._client.poll(_SLICE)
            error = self._watch.refusal(self._doing, self._where)
            if error is not None:
                raise error
            if time.monotonic() > deadline:
                msg = f"{self._doing}: no partition was assigned within "
                msg += f"{self._timeout:g} s"
                remedy = "check the brokers, and try again"
                raise StreamTimeout(msg, remedy=remedy)
        return self._assigned >= set(wanted)

    def _note(self, client: Consumer, given: list[TopicPartition]) -> None:
        self._assigned = {_partition(place) for place in given}

    def _commit(self, position: Position) -> bool:
        places = committed_places(position)
        try:
            done = self._client.commit(offsets=places, asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() in _SUPERSEDED:
                return False
            raise
        refused = [place.error for place in done or () if place.error is not None]
        if any(one.code() in _SUPERSEDED for one in refused):
            return False
        for one in refused:
            raise failure(one, self._doing, where=self._where)
        return True


def _partition(place: TopicPartition) -> Partition:
    return Partition(place.topic, place.partition)
