"""What writing asks the broker of topics."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from confluent_kafka import (
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

from streamfactory.backends.kafka.clients import Watch, inherit, of_this_process
from streamfactory.backends.kafka.errors import is_passing
from streamfactory.backends.kafka.producing import Deadline
from streamfactory.spi import TopicNotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

T = TypeVar("T")
"""What the broker answers."""

Lane = tuple[str, int]
"""Topic and partition."""

_EARLIEST: Final = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: Final = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_PAUSE: Final = 0.01
_TRY: Final = 3.0
"""Seconds after which a question is asked again: a broker that dies takes it along."""
_ANSWER: Final = 30.0
"""Seconds for one answer of a broker that was there a moment ago."""
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
    """Asks about topics. Thread-safe; connects when something is asked.

    Args:
        settings: Answers those of the client: secrets are resolved by who uses them.
        watch: Hears what clients say of the network.
        where: Which brokers.
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
            return self._again(ask, deadline)
        except KafkaException as error:
            if error.args[0].code() not in _MISSING:
                raise
            msg = f"there is no topic {topic!r}"
            remedy = "create it: `streamfactory topics create`"
            raise TopicNotFound(msg, remedy=remedy) from error

    def settings(self, topic: str, deadline: Deadline) -> dict[str, str]:
        """The configuration of a topic; empty where we may not see it."""

        def ask(seconds: float) -> dict[str, str]:
            resource = ConfigResource(ResourceType.TOPIC, topic)
            found = self._admin(topic, seconds).describe_configs(
                [resource], request_timeout=seconds
            )[resource]
            entries = found.result(seconds)
            return {name: entry.value for name, entry in entries.items()}

        try:
            return self._again(ask, deadline)
        except KafkaException as error:
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
        """Create a topic; that there is one already is fine."""

        def ask(seconds: float) -> None:
            new = NewTopic(topic, partitions, -1, config=dict(settings))
            made = self._admin(topic, seconds).create_topics(
                [new], request_timeout=seconds
            )
            made[topic].result(seconds)

        try:
            self._again(ask, deadline)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    def ends(
        self, lanes: Collection[Lane], deadline: Deadline, *, committed: bool
    ) -> dict[Lane, int]:
        """Where partitions end.

        Args:
            lanes: The partitions.
            deadline: For the answer.
            committed: As far as open transactions let readers see.
        """
        level = "READ_COMMITTED" if committed else "READ_UNCOMMITTED"
        return self._offsets(lanes, _LATEST, level, deadline)

    def begin(self, lane: Lane, deadline: Deadline) -> int:
        """Where a partition begins."""
        return self._offsets([lane], _EARLIEST, "READ_UNCOMMITTED", deadline)[lane]

    def await_visible(self, lanes: Collection[Lane], deadline: Deadline) -> bool:
        """Wait until readers see all that is in partitions now.

        Another's open transaction can hide it for as long as that takes.

        Returns:
            Whether they do.
        """
        missing = self.ends(lanes, Deadline(_ANSWER), committed=False)
        pause = _PAUSE
        while missing:
            seen = self.ends(missing, Deadline(_ANSWER), committed=True)
            missing = {lane: end for lane, end in missing.items() if seen[lane] < end}
            if not missing:
                break
            if not deadline.left:
                return False
            time.sleep(min(pause, deadline.left))
            pause = min(2 * pause, 0.2)
        return True

    def close(self) -> None:
        """Let go of the clients."""
        self._retire()
        with self._lock:
            self._retired = []

    def _retire(self) -> None:
        """Have another client from now on; this one may still wait for an answer."""
        with self._lock:
            connected, self._connected = self._connected, None
            if connected is not None and of_this_process(connected[0]):
                self._retired.append(connected[1])
            elif connected is not None:
                inherit(connected[1])

    def _admin(self, topic: str, seconds: float) -> AdminClient:
        with self._lock:
            if self._connected is None or not of_this_process(self._connected[0]):
                if self._connected is not None:
                    inherit(self._connected[1])
                client = AdminClient(dict(self._settings()))
                # Asked for offsets before it knows a broker, it may never answer.
                client.list_topics(topic, timeout=seconds)
                self._connected = (os.getpid(), client)
            return self._connected[1]

    def _offsets(
        self, lanes: Collection[Lane], which: Any, level: str, deadline: Deadline
    ) -> dict[Lane, int]:
        def ask(seconds: float) -> dict[Lane, int]:
            wanted = {TopicPartition(*lane): which for lane in lanes}
            answers = self._admin(next(iter(lanes))[0], seconds).list_offsets(
                wanted, isolation_level=IsolationLevel[level], request_timeout=seconds
            )
            return {
                (where.topic, where.partition): answer.result(seconds).offset
                for where, answer in answers.items()
            }

        return self._again(ask, deadline) if lanes else {}

    def _again(self, ask: Callable[[float], T], deadline: Deadline) -> T:
        """Ask until the answer is one: leaders move, and coordinators load.

        Raises:
            ConnectionFailed: transient; there was none in time.
            NotAuthorized: permanent; and the client was not let in.
        """
        while True:
            try:
                return ask(max(_PAUSE, min(_TRY, deadline.left)))
            except (KafkaException, TimeoutError) as error:
                passing = isinstance(error, TimeoutError) or is_passing(error)
                if not passing:
                    raise
                if not deadline.left:
                    doing = "asking about topics"
                    raise self._watch.unreachable(
                        doing, self._where, deadline.seconds
                    ) from error
                self._retire()  # it may know a leader of the past, and not learn better
                time.sleep(min(10 * _PAUSE, deadline.left))
