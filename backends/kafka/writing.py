"""Producer factory of ``kafka``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from streamfactory.arrowlog.messages import stored_messages
from streamfactory.backends.kafka.committing import EpochCommitter
from streamfactory.backends.kafka.producing import Deadline, TransactionalProducer
from streamfactory.backends.kafka.staging import Stage
from streamfactory.backends.kafka.writing_options import TASK
from streamfactory.backends.kafka.writing_resources import WritingResources
from streamfactory.spi import (
    Claims,
    CommitMessage,
    EpochVisibility,
    LastCommit,
    Outgoing,
    Position,
    ProducerFactory,
    StreamCommitter,
    StreamWriter,
    WriteContext,
    envelope_schema,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from streamfactory.backends.kafka.row_checks import RowChecks
    from streamfactory.backends.kafka.writing_topics import TopicPartitionKey
    from streamfactory.spi import StreamConfig

_SIGHT: Final = 0.5
"""Seconds for which a task waits until its rows are visible."""
_TASK_TIMEOUT: Final = 900.0
"""Timeout of a task's transaction in seconds; the default maximum of brokers."""


class EpochWriter(StreamWriter):
    """Stages the rows of one attempt; the committer sends them to Kafka."""

    def __init__(self, resources: WritingResources, context: WriteContext) -> None:
        self._resources = resources
        self._stage = Stage(resources.staging, context.attempt)
        self._checks: dict[str, RowChecks] = {}

    def write(self, outgoing: Outgoing) -> None:
        topic = outgoing.topic or self._resources.config.topic
        rows = stored_messages(outgoing)
        if topic not in self._checks:
            self._checks[topic] = self._resources.row_checks(topic)
        self._checks[topic](rows, outgoing.partition)
        self._stage.append(topic, outgoing.partition, rows)

    def commit(self) -> Any:
        return self._stage.seal().to_payload()

    def abort(self) -> None:
        self._stage.discard()

    def close(self) -> None:
        self._stage.close()


class TaskWriter(StreamWriter):
    """Sends the rows of one attempt in a separate transaction.

    The transactional id is derived from the task: a later attempt fences an earlier
    one.
    """

    def __init__(self, resources: WritingResources, context: WriteContext) -> None:
        self._topic = resources.config.topic
        given: int | None = resources.config.get("transaction.timeout.millis")
        timeout = _TASK_TIMEOUT if given is None else given / 1000
        whose = context.writer_id or f"anonymous/{context.attempt}"
        self._deadline = Deadline(timeout + resources.patience)
        self._producer = TransactionalProducer(
            resources.producer(),
            f"streamfactory/{self._topic}/{whose}/task-{context.task}",
            self._topic,
            timeout,
            Deadline(resources.patience),
            resources.library(),
        )
        self._resources = resources
        self._checks: dict[str, RowChecks] = {}
        self._partitions: set[TopicPartitionKey] = set()
        self._committed = False
        self._producer.begin()

    def write(self, outgoing: Outgoing) -> None:
        topic = outgoing.topic or self._topic
        rows = stored_messages(outgoing)
        if topic not in self._checks:
            self._checks[topic] = self._resources.row_checks(topic)
        self._checks[topic](rows, outgoing.partition)
        self._producer.send(topic, outgoing.partition, rows, self._deadline)
        self._partitions.add((topic, outgoing.partition))

    def wake(self) -> None:
        self._producer.wake()

    def commit(self) -> Any:
        self._producer.commit(self._deadline)
        self._committed = True
        # A short wait: tasks that write to one partition hide each other's rows.
        self._resources.topics.await_visible(self._partitions, Deadline(_SIGHT))
        return {}

    def abort(self) -> None:
        if not self._committed:
            self._producer.abort(Deadline(5.0))

    def close(self) -> None:
        self._producer.close()


class TaskCommitter(StreamCommitter):
    """Commits nothing: the tasks have committed."""

    def commit(
        self,
        epoch: int,
        messages: Sequence[CommitMessage],
        source_position: Position | None = None,
    ) -> LastCommit | None:
        return None


class KafkaProducerFactory(ProducerFactory):
    """Writes to existing topics."""

    CLAIMS: ClassVar = Claims(
        replayable=True,
        durable=True,
        shared=True,
        idempotent=True,
        epoch_visibility=EpochVisibility.WHOLE,
    )
    CARRIES: ClassVar = frozenset({"_key", "_headers", "_timestamp", "_topic"})

    def __init__(self, config: StreamConfig) -> None:
        super().__init__(config)
        self._resources = WritingResources(config)

    def create_writer(self, context: WriteContext) -> StreamWriter:
        if self._by_task:
            return TaskWriter(self._resources, context)
        return EpochWriter(self._resources, context)

    def create_committer(self, writer_id: str | None) -> StreamCommitter:
        if self._by_task:
            return TaskCommitter()
        return EpochCommitter(self._resources, writer_id)

    def fetch_last_commit(self, writer_id: str) -> LastCommit | None:
        if self._by_task:
            return None
        markers = self._resources.markers
        deadline = Deadline(self._resources.patience)
        place = markers.find(self.config.topic, writer_id, deadline)
        marker = None if place is None else markers.read(place, deadline)
        return None if marker is None else marker.commit

    def fetch_partition_count(self, topic: str) -> int:
        resources = self._resources
        return resources.topics.facts(topic, Deadline(resources.patience)).partitions

    def fetch_schema(self, topic: str) -> pa.Schema | None:
        return envelope_schema()

    def claims(self) -> Claims:
        if self._by_task:
            return replace(
                self.CLAIMS, idempotent=False, epoch_visibility=EpochVisibility.TASK
            )
        return self.CLAIMS

    def close(self) -> None:
        self._resources.close()

    @property
    def _by_task(self) -> bool:
        return bool(self.config["commit.mode"] == TASK)
