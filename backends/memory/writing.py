"""The writing half of ``memory``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from streamfactory.arrowlog import MemoryLog, Staged
from streamfactory.backends.memory.stores import CLAIMS, message_schema, store
from streamfactory.spi import (
    CommitMessage,
    LastCommit,
    MisuseError,
    Outgoing,
    Position,
    ProducerFactory,
    StreamCommitter,
    StreamConfig,
    StreamWriter,
    Summary,
    TopicNotFound,
    WriteContext,
    envelope_schema,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


class MemoryWriter(StreamWriter):
    """Stages the rows of one attempt."""

    def __init__(self, log: MemoryLog, context: WriteContext) -> None:
        self._messages = log.schema.equals(message_schema())
        self._stage = log.stage(context.attempt)

    def write(self, outgoing: Outgoing) -> None:
        rows = _messages(outgoing) if self._messages else outgoing.rows
        self._stage.append(outgoing.partition, rows)

    def commit(self) -> Any:
        sealed = self._stage.seal()
        return {"attempt": sealed.attempt, "rows": dict(sealed.rows)}

    def abort(self) -> None:
        self._stage.discard()


class MemoryCommitter(StreamCommitter):
    """Appends whole epochs. The topic may come later: with the first writer."""

    def __init__(self, writer_id: str | None, config: StreamConfig) -> None:
        self._writer_id = writer_id
        self._store: str = config["store"]
        self._topic = config.topic
        self._memory = config["writer.memory"] / 1000
        self._retention: int | None = config.get("retention.rows")

    def commit(
        self,
        epoch: int,
        messages: Sequence[CommitMessage],
        source_position: Position | None = None,
    ) -> LastCommit | None:
        return self._commit(epoch, messages, source_position, replace=False)

    def replace(
        self,
        epoch: int,
        messages: Sequence[CommitMessage],
        source_position: Position | None = None,
    ) -> LastCommit | None:
        return self._commit(epoch, messages, source_position, replace=True)

    def abort(self, epoch: int, messages: Sequence[CommitMessage]) -> None:
        try:
            log = store(self._store).open(self._topic)
        except TopicNotFound:
            return  # and what was staged in it went with it
        for message in messages:
            log.stage(message.payload["attempt"]).discard()

    def last(self) -> LastCommit | None:
        return _last(self._store, self._topic, self._writer_id)

    def _commit(
        self,
        epoch: int,
        messages: Sequence[CommitMessage],
        source_position: Position | None,
        *,
        replace: bool,
    ) -> LastCommit | None:
        log = store(self._store).open(self._topic)
        staged = [Staged(m.payload["attempt"], m.payload["rows"]) for m in messages]
        held = log.commit(
            self._writer_id,
            epoch,
            staged,
            summary=sum((m.summary for m in messages), Summary()),
            source_position=source_position,
            replace=replace,
        )
        log.forget(self._memory, keep=self._writer_id)
        if self._retention is not None:
            ends = {lane.id: lane.latest for lane in log.bounds()}
            log.truncate({lane: end - self._retention for lane, end in ends.items()})
        return held


class MemoryProducerFactory(ProducerFactory):
    """Writes one topic, which its first writer creates."""

    CLAIMS: ClassVar = CLAIMS
    CARRIES: ClassVar = frozenset({"_key", "_headers", "_timestamp"})

    def create_writer(self, context: WriteContext) -> StreamWriter:
        return MemoryWriter(self._log(context.schema), context)

    def create_committer(self, writer_id: str | None) -> StreamCommitter:
        return MemoryCommitter(writer_id, self.config)

    def fetch_last_commit(self, writer_id: str) -> LastCommit | None:
        return _last(self.config["store"], self.config.topic, writer_id)

    def fetch_partition_count(self, topic: str) -> int:
        try:
            return len(store(self.config["store"]).open(topic).bounds())
        except TopicNotFound:
            return int(self.config["partitions"])

    def fetch_schema(self, topic: str) -> pa.Schema | None:
        try:
            schema = store(self.config["store"]).open(topic).schema
        except TopicNotFound:
            schema = message_schema() if self._takes_messages else None
        if schema is not None and schema.equals(message_schema()):
            return envelope_schema()
        return schema

    @property
    def _takes_messages(self) -> bool:
        """Of a topic that is created: who names a decoder means messages."""
        return self.config["messages"] or self.config.decoder is not None

    def _log(self, schema: pa.Schema | None) -> MemoryLog:
        topics, topic = store(self.config["store"]), self.config.topic
        if topic in topics.names():
            return topics.open(topic)
        if self._takes_messages:
            schema = message_schema()
        if schema is None:
            return topics.open(topic)
        try:
            return topics.create(topic, schema, self.config["partitions"])
        except MisuseError:  # another writer was first
            return topics.open(topic)


def _last(store_name: str, topic: str, writer_id: str | None) -> LastCommit | None:
    if writer_id is None:
        return None
    try:
        return store(store_name).open(topic).last(writer_id)
    except TopicNotFound:
        return None


def _messages(outgoing: Outgoing) -> pa.RecordBatch:
    schema, count = message_schema(), outgoing.rows.num_rows
    given = {
        "key": outgoing.key,
        "value": outgoing.rows.column("value"),
        "timestamp": outgoing.timestamp,
        "headers": outgoing.headers,
    }
    columns = [
        pa.nulls(count, field.type)
        if given[field.name] is None
        else given[field.name].cast(field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
