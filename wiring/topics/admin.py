"""Topic administration: calls a backend's `TopicAdmin` with translation and retries."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeVar, final

from streamfactory.conversion.conform import check_columns
from streamfactory.conversion.differences import schema_difference
from streamfactory.spi import (
    ClosedError,
    MisuseError,
    PartitionInfo,
    PartitionState,
    SchemaMismatch,
    StreamError,
    TopicAdmin,
    TopicNotFound,
    Unsupported,
    Yields,
)
from streamfactory.spi.config import Setting
from streamfactory.wiring.config.loading import StreamLike, find_definition, load
from streamfactory.wiring.core.canonical import canonical_schema, declared_schema
from streamfactory.wiring.core.clock import Clock
from streamfactory.wiring.core.closing import Closing
from streamfactory.wiring.core.guard import Guard
from streamfactory.wiring.options.spool import PATH as SPOOL_PATH
from streamfactory.wiring.reading.losses import recreated, was_recreated
from streamfactory.wiring.reading.metadata import Metadata
from streamfactory.wiring.reading.source import unique_client_id
from streamfactory.wiring.streams.checkpoints import stream_checkpoints

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa

    from streamfactory.spi import (
        CheckpointStore,
        ConsumerFactory,
        Partition,
        StreamConfig,
        Verification,
    )
    from streamfactory.wiring.config.settled import Configured
    from streamfactory.wiring.plugins.manager import PluginManager

T = TypeVar("T")
"""What an author's code answers."""

_TOPIC: Final = "topic.name"
_CHOOSERS: Final = ("subscribe", "subscribePattern", "assign")


@dataclass(frozen=True, slots=True)
class Overview:
    """One topic in a list of topics."""

    topic: str
    partitions: tuple[PartitionInfo, ...] = ()
    problem: StreamError | None = None
    """Why its other properties are unknown."""


def open_admin(
    stream: StreamLike,
    *,
    topic: str | None = None,
    options: Mapping[str, object] | None = None,
    allow_class_paths: bool = False,
    plugins: PluginManager | None = None,
) -> Admin:
    """Open the administration of a stream's topic; the topic need not exist yet.

    For a stream with a spool it is that of the spool: the transport is not opened.

    Args:
        stream: The name of a stream in the catalogue, or its properties.
        topic: Another topic of the same storage or server; None for the stream's own.
        options: Properties that replace those of the definition.
        allow_class_paths: Whether the configuration may name Python objects.
        plugins: Finds types; by default those of the process.

    Raises:
        ConfigError: config; with all problems.
        UnknownStream: config; no stream has that name.
        PluginError: plugin; the type is not installed, or broken.
    """
    definition = find_definition(stream).with_overrides(options)
    has_spool = any(given.key.lower() == SPOOL_PATH for given in definition.properties)
    configured = load(
        definition,
        "read" if has_spool else "write",
        allow_class_paths=allow_class_paths,
        plugins=plugins,
    )
    return Admin(of_topic(configured, topic))


def of_topic(configured: Configured, topic: str | None) -> Configured:
    """Return the configuration with another topic; None returns it unchanged.

    Raises:
        MisuseError: misuse; the name is empty.
    """
    if topic is None:
        return configured
    config = configured.config
    if not topic.strip():
        msg = "the name of a topic must not be empty"
        raise MisuseError(msg, stream=config.name)
    return replace(configured, config=_named(config, topic))


def _named(config: StreamConfig, topic: str) -> StreamConfig:
    setting = Setting(
        _TOPIC, f"stream.{config.type}.{_TOPIC}", topic, topic, "argument"
    )
    kept = {k: s for k, s in config.settings.items() if k not in _CHOOSERS}
    own = f"{config.type}:{config.get(_TOPIC)}"
    name = f"{config.type}:{topic}" if config.name == own else config.name
    return replace(config, name=name, settings={**kept, _TOPIC: setting})


@final
class Admin(Closing):
    """Administers one topic, and lists the others. Thread-safe.

    Connects on first use. Idempotent operations are retried after transient errors,
    within ``connection.timeout.millis``.

    Args:
        configured: The configuration and its plug-ins.
        clock: The clock; simulations replace it.
    """

    def __init__(self, configured: Configured, *, clock: Clock | None = None) -> None:
        self.config = configured.config
        self._backend = configured.backend
        self._decodes = configured.decoder is not None
        self._guard = Guard(self.config, self._backend, clock or Clock())
        self._timeout = self.config["connection.timeout.millis"] / 1000
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._opened = ExitStack()
        self._author: TopicAdmin | None = None
        self._factory: ConsumerFactory | None = None
        self._metadata: Metadata | None = None

    @property
    def topic(self) -> str:
        """The topic's name.

        Raises:
            MisuseError: misuse; the stream is of several topics.
        """
        self._refuse_several()
        return self.config.topic

    @property
    def holds_messages(self) -> bool:
        """Whether its topics hold undecoded messages, which have no columns.

        So it is where the type has no others, or the stream has a decoder.
        """
        return self._backend.yields is Yields.ENVELOPE or self._decodes

    @property
    def declared(self) -> pa.Schema | None:
        """The option ``schema``, as a topic of rows is created with it."""
        return declared_schema(self.config, dictionaries=self._keeps_dictionaries)

    # --- queries --------------------------------------------------------------------

    def topics(self) -> list[str]:
        """Return the names of all topics.

        Raises:
            Unsupported: misuse; the type cannot list topics.
        """
        return self.metadata.list_topics()

    def overview(self) -> list[Overview]:
        """Return all topics; one that cannot be read has an error.

        Raises:
            Unsupported: misuse; the type cannot list topics.
        """
        found = []
        for name in self.topics():
            metadata = self._metadata_of(_named(self.config, name))
            try:
                found.append(Overview(name, tuple(metadata.partitions())))
            except TopicNotFound:
                continue  # deleted since it was listed
            except StreamError as error:
                found.append(Overview(name, problem=error))
            finally:
                metadata.close()
        return found

    def partitions(self) -> list[PartitionInfo]:
        """Return the topic's partitions with their current bounds.

        Raises:
            TopicNotFound: permanent.
        """
        self._refuse_several()
        infos = self.metadata.partitions()
        return [info for info in infos if info.state is not PartitionState.VANISHED]

    def schema(self) -> pa.Schema:
        """Return the schema of the topic, before decoding.

        Raises:
            SchemaUnknown: config.
        """
        self._refuse_several()
        return self.metadata.schema()

    def refuse_recreated(self, incarnations: Mapping[Partition, str | None]) -> None:
        """Refuse to change a topic that was recreated since it was looked at.

        Args:
            incarnations: The incarnation of each partition at that time.

        Raises:
            IncarnationChanged: data_loss; it was deleted and created again.
        """
        for info in self.partitions():
            expected, found = incarnations.get(info.partition), info.incarnation
            if was_recreated(expected, found):
                error = recreated(info.partition, expected, found, None)
                error.remedy = "repeat the command; nothing was changed"
                raise error.at(stream=self.config.name)

    def facts(self) -> Mapping[str, str | int]:
        """Return properties to show with the partitions; empty if the type has none."""
        if self._backend.topic_admin is None:
            return {}
        topic = self.topic
        try:
            return self._ask("fetch properties", lambda admin: admin.facts(topic))
        except Unsupported:
            return {}  # foreign files, for example, do not support administration

    def verify(self) -> Verification:
        """Read all messages, and check them against the commits."""
        topic = self.topic
        return self._ask("verify the topic", lambda admin: admin.verify(topic))

    def checkpoints(self) -> CheckpointStore:
        """Return the checkpoint store of groups without ``checkpoint.location``.

        Raises:
            Unsupported: misuse; the type stores no checkpoints.
        """
        with self._lock:
            self._check_open()
            found = stream_checkpoints(self._consumers(), self._guard, self.config)
            if found is None:
                msg = f"stream type {self._backend.name!r} stores no checkpoints"
                remedy = "pass the folder of checkpoint.location"
                raise Unsupported(msg, stream=self.config.name, remedy=remedy)
            self._opened.callback(found.close)
            return found

    # --- operations -------------------------------------------------------------

    def create(self, schema: pa.Schema | None, partitions: int | None = None) -> None:
        """Create the topic.

        Args:
            schema: Schema of its rows, in any types; None for undecoded messages.
            partitions: Their number; None for that of the configuration.

        Raises:
            MisuseError: misuse; the topic exists.
            SchemaMismatch: permanent; a column is repeated, or there is none, or they
                are not the declared ones.
        """
        stored = None
        if schema is not None:
            check_columns(schema)
            kept = self._keeps_dictionaries
            stored = canonical_schema(schema, dictionaries=kept)
            self._refuse_undeclared(stored)
        topic = self.topic
        self._do(lambda admin: admin.create(topic, stored, partitions))

    def grow(self, partitions: int) -> None:
        """Increase the number of partitions.

        Raises:
            MisuseError: misuse; there are more.
        """
        topic = self.topic
        self._ask("grow the topic", lambda admin: admin.grow(topic, partitions))

    def truncate(self, before: Mapping[int, int]) -> None:
        """Delete the messages before these offsets, by partition; exclusive."""
        topic = self.topic
        self._ask("truncate the topic", lambda admin: admin.truncate(topic, before))

    def retain(self, hold: Mapping[int, int]) -> None:
        """Apply the configured retention.

        By partition, keep messages from ``hold`` on.
        """
        topic = self.topic
        self._ask("apply retention", lambda admin: admin.retain(topic, hold))

    def delete(self) -> None:
        """Delete the topic and all its messages.

        Raises:
            TopicNotFound: permanent.
        """
        topic = self.topic
        self._do(lambda admin: admin.delete(topic))

    def compact(self) -> None:
        """Merge small files and remove unused ones; offsets are unchanged."""
        topic = self.topic
        self._ask("compact the topic", lambda admin: admin.compact(topic))

    def close(self) -> None:
        """Close; may be called twice."""
        self._closed.set()
        self._guard.end(self._close)

    def _close(self) -> None:
        with self._lock:
            opened = self._opened.pop_all()
        with self._guard.border():
            opened.close()

    # --- calls of the backend ---------------------------------------------------

    @property
    def metadata(self) -> Metadata:
        """The metadata: names, bounds and schemas; created on first use."""
        with self._lock:
            if self._metadata is None:
                self._check_open()
                self._metadata = self._metadata_of(self.config)
                self._opened.callback(self._metadata.close)
            return self._metadata

    def _metadata_of(self, config: StreamConfig) -> Metadata:
        client_id = unique_client_id("streamfactory-topics")
        return Metadata(config, self._consumers(), self._guard, client_id)

    def _consumers(self) -> ConsumerFactory:
        if self._factory is None:
            make = self._backend.consumer_factory
            if make is None:
                msg = f"stream type {self._backend.name!r} cannot be read"
                raise Unsupported(msg, stream=self.config.name)
            with self._guard.border():
                self._factory = make(self.config)
            self._opened.callback(self._factory.close)
        return self._factory

    def _operator(self) -> TopicAdmin:
        with self._lock:
            self._check_open()
            if self._author is None:
                make = self._backend.topic_admin
                if make is None:
                    msg = f"stream type {self._backend.name!r} does not support topic "
                    msg += "administration"
                    remedy = "use the tools of the source"
                    raise Unsupported(msg, stream=self.config.name, remedy=remedy)
                self._author = make(self.config)
                self._opened.callback(self._author.close)
            return self._author

    def _ask(self, operation: str, question: Callable[[TopicAdmin], T]) -> T:
        """Call the backend; retry after transient errors."""
        return self._guard.call(
            operation,
            lambda: question(self._operator()),
            closed=self._closed,
            timeout=self._timeout,
        )

    def _do(self, action: Callable[[TopicAdmin], None]) -> None:
        """Call the backend once, for operations that are not idempotent."""
        with self._guard.border():
            action(self._operator())

    @property
    def _keeps_dictionaries(self) -> bool:
        producer = self._backend.producer_factory
        return producer is not None and producer.KEEPS_DICTIONARIES

    def _refuse_undeclared(self, schema: pa.Schema) -> None:
        declared = self.declared
        difference = None if declared is None else schema_difference(schema, declared)
        if difference is not None:
            msg = f"the columns are not those of the option schema: {difference}"
            remedy = "omit the columns, or change the option"
            raise SchemaMismatch(msg, stream=self.config.name, remedy=remedy)

    def _refuse_several(self) -> None:
        if _TOPIC not in self.config:
            msg = "this stream reads several topics"
            raise MisuseError(msg, stream=self.config.name, remedy="name one of them")

    def _check_open(self) -> None:
        if self._closed.is_set():
            msg = "the topic administration is closed"
            raise ClosedError(msg, stream=self.config.name)
