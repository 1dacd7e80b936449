"""Queries about topics for writers."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from confluent_kafka import (
    OFFSET_INVALID,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not in its stubs
    AdminClient,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from streamfactory.backends.kafka.clients import Watch, keep_inherited, of_this_process
from streamfactory.backends.kafka.errors import is_passing
from streamfactory.backends.kafka.producing import Deadline
from streamfactory.spi import TopicNotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

T = TypeVar("T")
"""Result of a query."""

TopicPartitionKey = tuple[str, int]
"""Topic and partition."""

_EARLIEST: Final = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: Final = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_PAUSE: Final = 0.01
_TRY: Final = 3.0
"""Seconds after which a request is repeated: a crashed broker never responds."""
_ANSWER: Final = 30.0
"""Seconds for the response of a broker that was reachable a moment ago."""
_SPREAD: Final = 10.0
"""Seconds in which a topic that one broker has is known to all of them."""
_MISSING: Final = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
}


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """What identifies a topic."""

    id: str
    partitions: int


class WrittenTopics:
    """Queries about topics. Thread-safe; connects at the first query.

    Args:
        settings: Returns the settings of the client, with resolved secrets.
        watch: Receives the client's reports about the network.
        where: The brokers.
    """

    def __init__(
        self, settings: Callable[[], Mapping[str, Any]], watch: Watch, where: str
    ) -> None:
        self._settings = settings
        self._watch = watch
        self._where = where
        self._lock = threading.Lock()
        self._connected: tuple[int, AdminClient] | None = None
        self._retired: list[AdminClient] = []
        self._found: set[str] = set()
        """Topics that a broker had once."""

    def facts(self, topic: str, deadline: Deadline) -> TopicFacts:
        """Id and partitions of a topic.

        Raises:
            TopicNotFound: permanent.
        """

        def ask(seconds: float) -> TopicFacts:
            wanted = TopicCollection([topic])
            answers = self._admin(topic, seconds).describe_topics(
                wanted, request_timeout=seconds
            )
            found = answers[topic].result(seconds)
            return TopicFacts(str(found.topic_id), len(found.partitions))

        try:
            facts = self._retry(ask, deadline, found=False)
        except KafkaException as error:
            if error.args[0].code() not in _MISSING:
                raise
            raise _not_found(topic) from error
        self._found.add(topic)
        return facts

    def settings(self, topic: str, deadline: Deadline) -> dict[str, str]:
        """The configuration of a topic; empty without permission to read it.

        Raises:
            TopicNotFound: permanent; no broker knows it, or not after a while if one
                did before.
        """
        if topic not in self._found:
            self.facts(topic, deadline)

        def ask(seconds: float) -> dict[str, str]:
            resource = ConfigResource(ResourceType.TOPIC, topic)
            found = self._admin(topic, seconds).describe_configs(
                [resource], request_timeout=seconds
            )[resource]
            entries = found.result(seconds)
            return {name: entry.value for name, entry in entries.items()}

        try:
            return self._retry(ask, deadline)
        except KafkaException as error:
            if error.args[0].code() in _MISSING:
                raise _not_found(topic) from error
            if error.args[0].code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise
            return {}

    def create(
        self,
        topic: str,
        partitions: int,
        settings: Mapping[str, str],
        deadline: Deadline,
    ) -> None:
        """Create a topic; does nothing if it exists."""

        def ask(seconds: float) -> None:
            new = NewTopic(topic, partitions, -1, config=dict(settings))
            made = self._admin(topic, seconds).create_topics(
                [new], request_timeout=seconds
            )
            made[topic].result(seconds)

        try:
            self._retry(ask, deadline, found=False)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    def ends(
        self,
        partitions: Collection[TopicPartitionKey],
        deadline: Deadline,
        *,
        committed: bool,
    ) -> dict[TopicPartitionKey, int]:
        """The end offsets of partitions.

        Args:
            partitions: The partitions.
            deadline: For the response.
            committed: The last stable offset, before open transactions, instead of the
                end of the log.
        """
        level = "READ_COMMITTED" if committed else "READ_UNCOMMITTED"
        return self._offsets(partitions, _LATEST, level, deadline)

    def begin(self, key: TopicPartitionKey, deadline: Deadline) -> int:
        """The earliest offset of a partition."""
        return self._offsets([key], _EARLIEST, "READ_UNCOMMITTED", deadline)[key]

    def await_visible(
        self, partitions: Collection[TopicPartitionKey], deadline: Deadline
    ) -> bool:
        """Wait until readers see all rows that the partitions have now.

        An open transaction of another producer can hide them until it ends.

        Returns:
            Whether they are visible.
        """
        missing = self.ends(partitions, Deadline(_ANSWER), committed=False)
        pause = _PAUSE
        while missing:
            seen = self.ends(missing, Deadline(_ANSWER), committed=True)
            missing = {key: end for key, end in missing.items() if seen[key] < end}
            if not missing:
                break
            if not deadline.left:
                return False
            time.sleep(min(pause, deadline.left))
            pause = min(2 * pause, 0.2)
        return True

    def close(self) -> None:
        """Drop the clients."""
        self._retire()
        with self._lock:
            self._retired = []

    def _retire(self) -> None:
        """Replace the client; the old one may still wait for a response."""
        with self._lock:
            connected, self._connected = self._connected, None
            if connected is not None and of_this_process(connected[0]):
                self._retired.append(connected[1])
            elif connected is not None:
                keep_inherited(connected[1])

    def _admin(self, topic: str, seconds: float) -> AdminClient:
        with self._lock:
            if self._connected is None or not of_this_process(self._connected[0]):
                if self._connected is not None:
                    keep_inherited(self._connected[1])
                client = AdminClient(dict(self._settings()))
                try:
                    # librdkafka may not answer list_offsets before it found a broker.
                    client.list_topics(topic, timeout=seconds)
                finally:
                    client.poll(0)  # the client's reports reach the watch
                self._connected = (os.getpid(), client)
            return self._connected[1]

    def _offsets(
        self,
        partitions: Collection[TopicPartitionKey],
        which: Any,
        level: str,
        deadline: Deadline,
    ) -> dict[TopicPartitionKey, int]:
        def ask(seconds: float) -> dict[TopicPartitionKey, int]:
            wanted = {TopicPartition(*key): which for key in partitions}
            answers = self._admin(next(iter(partitions))[0], seconds).list_offsets(
                wanted, isolation_level=IsolationLevel[level], request_timeout=seconds
            )
            found = {
                (where.topic, where.partition): answer.result(seconds).offset
                for where, answer in answers.items()
            }
            if OFFSET_INVALID in found.values():
                # The client returns it, and no error, while a leader moves.
                raise KafkaException(KafkaError(KafkaError._NO_OFFSET))
            return found

        return self._retry(ask, deadline) if partitions else {}

    def _retry(
        self, ask: Callable[[float], T], deadline: Deadline, *, found: bool = True
    ) -> T:
        """Retry a query: leaders move and coordinators load.

        Args:
            ask: The query; its argument is the time of one attempt, in seconds.
            deadline: For all attempts.
            found: Whether `facts` has found the topic. Then a broker that does not know
                it is asked again for a while: a new topic is not known to all at once.

        Raises:
            ConnectionFailed: transient; no response before the deadline.
            NotAuthorized: permanent; the credentials were rejected.
        """
        spread = Deadline(_SPREAD)
        while True:
            try:
                return ask(max(_PAUSE, min(_TRY, deadline.left)))
            except (KafkaException, TimeoutError) as error:
                passing = isinstance(error, TimeoutError) or is_passing(error)
                if found and spread.left and isinstance(error, KafkaException):
                    passing |= error.args[0].code() in _MISSING
                if not passing:
                    raise
                doing = "asking about topics"
                refused = self._watch.refusal(doing, self._where)
                if refused is not None:
                    raise refused from error
                if not deadline.left:
                    raise self._watch.unreachable(
                        doing, self._where, deadline.seconds
                    ) from error
                self._retire()  # it may cache an old leader
                time.sleep(min(10 * _PAUSE, deadline.left))


def _not_found(topic: str) -> TopicNotFound:
    msg = f"topic {topic!r} does not exist"
    remedy = "create it with `streamfactory topics create`"
    return TopicNotFound(msg, remedy=remedy)
