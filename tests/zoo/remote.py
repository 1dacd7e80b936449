"""``memory`` behind a server that stops, hangs and refuses users: a correct backend.

What a process sends to the server goes through `Server.send`. The broken backends of
`outages` are made of these classes.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from tests.zoo.registry import ZooConsumers, ZooProducers

from streamfactory.arrowlog import LogConsumer, LogMetadata
from streamfactory.arrowlog.writing import LogCommitter, LogWriter
from streamfactory.backends.memory import streamfactory_backend
from streamfactory.backends.memory.harness import MemoryHarness
from streamfactory.backends.memory.writing import MemoryTopicAdmin
from streamfactory.spi import (
    Backend,
    ConnectionFailed,
    CorruptData,
    NotAuthorized,
    Option,
    PartitionLevelConsumer,
    StorageFailed,
    StreamTimeout,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

    from streamfactory.spi import (
        CommitMessage,
        Fetched,
        FetchLimits,
        LastCommit,
        MetadataProvider,
        Outgoing,
        Partition,
        PartitionInfo,
        Position,
        StreamCommitter,
        StreamConfig,
        StreamWriter,
        WriteContext,
    )

RIGHTS: Final[Mapping[str, frozenset[str]]] = {
    "owner": frozenset({"read", "write", "administer"}),
    "writer": frozenset({"read", "write"}),
    "reader": frozenset({"read"}),
    "stranger": frozenset(),
}
"""Of users."""
GREATEST: Final = 2**63 - 2
"""Offset of a message."""


class Server:
    """The state of the server of one harness."""

    def __init__(self) -> None:
        self.answering = threading.Event()
        self.answering.set()
        self.up = True
        self.late: list[Callable[[], object]] = []
        """Requests that it executes when it answers again."""
        self.base = 0
        """Offset of the first message."""
        self.exceeded = False
        """Whether the last message has no offset."""
        self.staged: dict[str, bool] = {}
        """Attempts that are not decided, and whether each expires."""

    def send(self, config: StreamConfig, right: str) -> None:
        """A request that needs a right."""
        if not self.answering.wait(config["connection.timeout.millis"] / 1000):
            msg = "the server does not answer"
            raise StreamTimeout(msg)
        if not self.up:
            msg = "the server is not up"
            raise ConnectionFailed(msg)
        if right not in RIGHTS[config["user"]]:
            msg = f"the user {config['user']!r} may not {right}"
            raise NotAuthorized(msg)


_SERVERS: Final[dict[str, Server]] = {}


def server_of(config: StreamConfig) -> Server:
    """The server of a configuration."""
    return _SERVERS[config["store"]]


class RemoteConsumer(PartitionLevelConsumer):
    """Reads one partition, at the offsets that the server gives it."""

    def __init__(self, factory: RemoteConsumers, partition: Partition) -> None:
        self.config, self.partition = factory.config, partition
        self._factory = factory
        self._inner: LogConsumer | None = None

    def fetch_messages(
        self, start: int, end: int | None, limits: FetchLimits
    ) -> Fetched:
        server = server_of(self.config)
        server.send(self.config, "read")
        if self._inner is None:
            log = self._factory.store().open(self.partition.topic)
            self._inner = LogConsumer(log, self.partition, None)
        base = server.base
        found = self._inner.fetch_messages(
            max(0, start - base), None if end is None else end - base, limits
        )
        if server.exceeded and found.rows is not None:
            self.refuse()
        return replace(
            found,
            next_offset=self.shift(found.next_offset, base),
            latest=None if found.latest is None else self.shift(found.latest, base),
            held_from=base if found.held_from is not None and base else found.held_from,
        )

    def shift(self, offset: int, base: int) -> int:
        """The offset for readers of one of the log."""
        return offset + base

    def refuse(self) -> None:
        """Refuse a message without an offset."""
        msg = "a message has no offset"
        raise CorruptData(msg)


class RemoteMetadata(LogMetadata):
    """Asks the server."""

    def __init__(self, factory: RemoteConsumers) -> None:
        super().__init__(factory)
        self.config = factory.config

    def fetch_partitions(
        self, topics: Sequence[str], known: Collection[Partition]
    ) -> Sequence[PartitionInfo]:
        server = server_of(self.config)
        server.send(self.config, "read")
        infos, base = super().fetch_partitions(topics, known), server.base
        return [
            replace(i, earliest=i.earliest + base, latest=(i.latest or 0) + base)
            for i in infos
        ]

    def fetch_schema(self, topic: str) -> pa.Schema:
        server_of(self.config).send(self.config, "read")
        return super().fetch_schema(topic)


class RemoteConsumers(ZooConsumers):
    """The reading half."""

    REMOTE: ClassVar[type[RemoteConsumer]] = RemoteConsumer
    ABOUT: ClassVar[type[RemoteMetadata]] = RemoteMetadata

    def create_partition_level_consumer(
        self,
        client_id: str,
        partition: Partition,
        fields_to_read: Sequence[str] | None = None,
    ) -> PartitionLevelConsumer:
        return self.REMOTE(self, partition)

    def create_metadata_provider(self, client_id: str) -> MetadataProvider:
        return self.ABOUT(self)


class RemoteWriter(LogWriter):
    """Stages rows in the server."""

    config: StreamConfig
    attempt: str
    EXPIRES: ClassVar = True

    def write(self, outgoing: Outgoing) -> None:
        server = server_of(self.config)
        server.send(self.config, "write")
        server.staged[self.attempt] = self.EXPIRES
        super().write(outgoing)

    def abort(self) -> None:
        server_of(self.config).staged.pop(self.attempt, None)
        super().abort()


class RemoteCommitter(LogCommitter):
    """Commits in the server, as long as there are offsets."""

    @property
    def config(self) -> StreamConfig:
        """Of the factory."""
        return self._factory.config

    def commit(
        self,
        epoch: int,
        messages: Sequence[CommitMessage],
        source_position: Position | None = None,
    ) -> LastCommit | None:
        server_of(self.config).send(self.config, "write")
        self.check_space(messages)
        held = super().commit(epoch, messages, source_position)
        self.forget(messages)
        return held

    def abort(self, epoch: int, messages: Sequence[CommitMessage]) -> None:
        self.forget(messages)
        super().abort(epoch, messages)

    def forget(self, messages: Sequence[CommitMessage]) -> None:
        """Remove what is staged."""
        for message in messages:
            attempt = message.payload["attempt"]
            server_of(self.config).staged.pop(attempt, None)

    def check_space(self, messages: Sequence[CommitMessage]) -> None:
        """Refuse rows behind the greatest offset."""
        last = max(b.latest for b in self._factory.log().bounds()) - 1
        rows = sum(message.summary.rows for message in messages)
        if server_of(self.config).base + last + rows > GREATEST:
            msg = "no offset is left"
            raise StorageFailed(msg)

    def last(self) -> LastCommit | None:
        server_of(self.config).send(self.config, "write")
        return super().last()


class RemoteProducers(ZooProducers):
    """The writing half."""

    CLAIMS: ClassVar = replace(ZooProducers.CLAIMS, durable=True)
    REMOTE: ClassVar[type[RemoteWriter]] = RemoteWriter
    COMMITTER: ClassVar[type[LogCommitter]] = RemoteCommitter

    def create_writer(self, context: WriteContext) -> StreamWriter:
        writer = self.REMOTE(self.log(context.schema), context)
        writer.config, writer.attempt = self.config, context.attempt
        return writer

    def create_committer(self, writer_id: str | None) -> StreamCommitter:
        return self.COMMITTER(self, writer_id)


class RemoteAdmin(MemoryTopicAdmin):
    """Administration by the server."""

    def send(self, right: str = "administer") -> None:
        """A request."""
        server_of(self.config).send(self.config, right)

    def create(
        self, topic: str, schema: pa.Schema | None, partitions: int | None
    ) -> None:
        self.send()
        super().create(topic, schema, partitions)

    def grow(self, topic: str, partitions: int) -> None:
        self.send()
        super().grow(topic, partitions)

    def truncate(self, topic: str, before: Mapping[int, int]) -> None:
        self.send()
        super().truncate(topic, before)

    def delete(self, topic: str) -> None:
        self.send()
        super().delete(topic)


class RemoteHarness(MemoryHarness):
    """A server for each case."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._server = _SERVERS[self._name] = Server()

    def create(self, partitions: int) -> None:
        super().create(partitions)
        self._server.base = 0

    def properties(self) -> Mapping[str, str]:
        return {**super().properties(), "stream.memory.user": "owner"}

    def stop(self) -> None:
        self._server.up = False

    def start(self) -> None:
        self._server.up = True

    def freeze(self) -> None:
        self._server.answering.clear()

    def thaw(self) -> None:
        self._server.answering.set()
        for request in self._server.late:
            request()
        self._server.late.clear()

    def staged(self) -> Mapping[str, bool]:
        return dict(self._server.staged)

    def login_without_rights(self) -> Mapping[str, str]:
        return {"stream.memory.user": "stranger"}

    def login_that_reads(self) -> Mapping[str, str]:
        return {"stream.memory.user": "reader"}

    def login_that_writes(self) -> Mapping[str, str]:
        return {"stream.memory.user": "writer"}

    def advance(self, partition: int, offset: int) -> None:
        self._server.base = offset

    def exceed(self, partition: int) -> None:
        self._server.exceeded = True
        self.write(partition, [0])


def remote_backend(**parts: Any) -> Backend:
    """The backend, with some of its parts replaced."""
    sound = streamfactory_backend()
    correct = Backend(
        name=sound.name,
        doc=sound.doc,
        spi_level=1,
        options=(*sound.options, Option("user", "Name of the user.", default="owner")),
        consumer_factory=RemoteConsumers,
        producer_factory=RemoteProducers,
        topic_admin=RemoteAdmin,
        yields=sound.yields,
    )
    return replace(correct, **parts)
