"""``memory``: streams inside one process, for tests, examples and notebooks.

Talks to nobody and needs nothing installed. Several partitions, offsets that count
rows, replay while rows are held, growth, retention, whole epochs, each once. What it
holds is gone with its process, and other processes do not see it: not durable, not
shared. A forked child begins with empty stores.

A topic is made by its first writer, or by hand::

    from streamfactory.backends.memory import store

    store().create("clicks", schema, partitions=2)
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from streamfactory.arrowlog import LogSlice, MemoryLog, MemoryLogStore, Staged
from streamfactory.spi import (
    BOOLEAN,
    INTEGER,
    Backend,
    BatchState,
    Claims,
    CommitMessage,
    ConsumerFactory,
    EpochVisibility,
    Fetched,
    FetchLimits,
    LastCommit,
    MetadataProvider,
    MisuseError,
    Option,
    Outgoing,
    Partition,
    PartitionInfo,
    PartitionLevelConsumer,
    Position,
    ProducerFactory,
    StreamCommitter,
    StreamConfig,
    StreamWriter,
    Summary,
    TopicNotFound,
    WriteContext,
    Yields,
    envelope_schema,
    headers_type,
    hookimpl,
)
from streamfactory.spi.envelope import TIMESTAMP_CREATED, TIMESTAMP_UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

_stores: Final[dict[tuple[int, str], MemoryLogStore]] = {}
"""By process, too: what a fork copies was perhaps half written, its locks taken."""

_CLAIMS: Final = Claims(
    replayable=True,
    idempotent=True,
    epoch_visibility=EpochVisibility.WHOLE,
)


def store(name: str = "default") -> MemoryLogStore:
    """The store of that name in this process, made on first use."""
    return _stores.setdefault((os.getpid(), name), MemoryLogStore())


def message_schema() -> pa.Schema:
    """What a topic of undecoded messages stores; the rest is known by its place."""
    return pa.schema(
        [
            pa.field("key", pa.binary()),
            pa.field("value", pa.binary()),
            pa.field("timestamp", pa.timestamp("us", tz="UTC")),
            pa.field("headers", headers_type()),
        ]
    )


class MemoryConsumer(PartitionLevelConsumer):
    """Reads one lane."""

    def __init__(
        self, log: MemoryLog, partition: Partition, fields: Sequence[str] | None
    ) -> None:
        self._log = log
        self._partition = partition
        self._fields = None if fields is None else list(fields)
        self._messages = log.schema.equals(message_schema())
        self._woken = threading.Event()

    def fetch_messages(
        self, start: int, end: int | None, limits: FetchLimits
    ) -> Fetched:
        most = limits.max_rows if end is None else min(limits.max_rows, end - start)
        number = self._partition.id
        found = self._read(start, most, limits.max_bytes)
        if found.rows is None and not self._woken.is_set():
            self._log.wait(number, start, limits.timeout, self._woken)
            found = self._read(start, most, limits.max_bytes)
        rows, latest = found.rows, found.bounds.latest
        if rows is None:
            return Fetched(
                None,
                start,
                state=BatchState.CAUGHT_UP,
                latest=latest,
                incarnation=self._log.incarnation,
            )
        if self._messages:
            rows = _envelopes(rows, self._partition, start)
        elif self._fields is not None:
            rows = rows.select(self._fields)
        return Fetched(
            rows,
            start + rows.num_rows,
            latest=latest,
            held_from=found.bounds.earliest,
            incarnation=self._log.incarnation,
            size=found.size,
        )

    def wake(self) -> None:
        self._woken.set()
        self._log.wake()

    def _read(self, start: int, max_rows: int, max_bytes: int) -> LogSlice:
        return self._log.read(
            self._partition.id, start, max_rows=max_rows, max_bytes=max_bytes
        )


class MemoryMetadata(MetadataProvider):
    """Answers from the store."""

    def __init__(self, store_name: str) -> None:
        self._store = store_name

    @property
    def _topics(self) -> MemoryLogStore:
        return store(self._store)

    def fetch_partitions(
        self, topics: Sequence[str], known: Collection[Partition]
    ) -> Sequence[PartitionInfo]:
        infos = []
        for topic in topics:
            log = self._topics.open(topic)
            infos += [
                PartitionInfo(
                    Partition(topic, lane.id),
                    lane.earliest,
                    lane.latest,
                    incarnation=log.incarnation,
                )
                for lane in log.bounds()
            ]
        return infos

    def fetch_offsets_at(
        self, timestamp_ms: int, partitions: Collection[Partition]
    ) -> Mapping[Partition, int | None]:
        found: dict[Partition, int | None] = {}
        for topic in {partition.topic for partition in partitions}:
            ids = [p.id for p in partitions if p.topic == topic]
            offsets = self._topics.open(topic).offsets_at(timestamp_ms, ids)
            found |= {Partition(topic, i): offset for i, offset in offsets.items()}
        return found

    def fetch_schema(self, topic: str) -> pa.Schema:
        schema = self._topics.open(topic).schema
        return envelope_schema() if schema.equals(message_schema()) else schema

    def fetch_topics(self) -> Sequence[str]:
        return self._topics.names()


class MemoryConsumerFactory(ConsumerFactory):
    """Reads the topics of one store."""

    CLAIMS: ClassVar = _CLAIMS

    def create_partition_level_consumer(
        self,
        client_id: str,
        partition: Partition,
        fields_to_read: Sequence[str] | None = None,
    ) -> PartitionLevelConsumer:
        topics = store(self.config["store"])
        return MemoryConsumer(topics.open(partition.topic), partition, fields_to_read)

    def create_metadata_provider(self, client_id: str) -> MetadataProvider:
        return MemoryMetadata(self.config["store"])


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

    CLAIMS: ClassVar = _CLAIMS
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


def _envelopes(
    rows: pa.RecordBatch, partition: Partition, start: int
) -> pa.RecordBatch:
    count = rows.num_rows
    timestamp = rows.column("timestamp")
    created, unknown = (
        pa.scalar(kind, pa.int32()) for kind in (TIMESTAMP_CREATED, TIMESTAMP_UNKNOWN)
    )
    columns = {
        "key": rows.column("key"),
        "value": rows.column("value"),
        "topic": pa.repeat(pa.scalar(partition.topic, pa.string()), count),
        "partition": pa.repeat(pa.scalar(partition.id, pa.int32()), count),
        "offset": pa.arange(start, start + count),
        "timestamp": timestamp,
        "timestampType": pc.if_else(timestamp.is_valid(), created, unknown),
        "headers": rows.column("headers"),
    }
    return pa.RecordBatch.from_pydict(columns, schema=envelope_schema())


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


@hookimpl
def streamfactory_backend() -> Backend:
    """The descriptor."""
    return Backend(
        name="memory",
        doc="Streams inside one process: for tests, examples and notebooks.",
        spi_level=1,
        consumer_factory=MemoryConsumerFactory,
        producer_factory=MemoryProducerFactory,
        yields=Yields.EITHER,
        options=(
            Option(
                "store", "Name of the store that holds the topic.", default="default"
            ),
            Option(
                "partitions",
                "Partitions of a topic that is created.",
                INTEGER,
                default="1",
                minimum=1,
                maximum=100_000,
            ),
            Option(
                "messages",
                "Create the topic for undecoded messages rather than typed rows.",
                BOOLEAN,
                default="false",
            ),
            Option(
                "retention.rows",
                "Keep so many rows of each partition; all, when not set.",
                INTEGER,
                minimum=0,
            ),
        ),
    )
