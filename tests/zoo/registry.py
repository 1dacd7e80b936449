"""How a broken backend is made: a correct one with one class replaced."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from streamfactory.arrowlog import LogConsumer, LogMetadata
from streamfactory.arrowlog.writing import LogCommitter, LogWriter
from streamfactory.backends.memory import (
    MemoryConsumerFactory,
    MemoryProducerFactory,
    streamfactory_backend,
)
from streamfactory.backends.memory.harness import MemoryHarness
from streamfactory.conformance.specimens import (
    durable,
    envelope_writing,
    envelopes,
    forgetful,
    redelivering,
)
from streamfactory.spi import Backend, ConsumerFactory, TopicAdmin, TopicNotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streamfactory.spi import (
        MetadataProvider,
        Partition,
        PartitionLevelConsumer,
        StreamCommitter,
        StreamWriter,
        WriteContext,
    )


@dataclass(frozen=True)
class BrokenBackend:
    """A broken backend and the case that is meant to catch it."""

    name: str
    doc: str
    caught_by: str
    backend: Backend = field(repr=False)
    harness: type[Any] = field(default=MemoryHarness, repr=False)
    """Of the backend that it is made of."""


ZOO: dict[str, BrokenBackend] = {}


class ZooConsumers(MemoryConsumerFactory):
    """The reading half, with classes that can be replaced."""

    CONSUMER: ClassVar[type[LogConsumer]] = LogConsumer
    METADATA: ClassVar[type[LogMetadata]] = LogMetadata

    def create_partition_level_consumer(
        self,
        client_id: str,
        partition: Partition,
        fields_to_read: Sequence[str] | None = None,
    ) -> PartitionLevelConsumer:
        log = self.store().open(partition.topic)
        if partition.id >= len(log.bounds()):
            msg = f"there is no partition {partition}"
            raise TopicNotFound(msg)
        return self.CONSUMER(log, partition, fields_to_read)

    def create_metadata_provider(self, client_id: str) -> MetadataProvider:
        return self.METADATA(self)


class ZooProducers(MemoryProducerFactory):
    """The writing half, with classes that can be replaced."""

    WRITER: ClassVar[type[LogWriter]] = LogWriter
    COMMITTER: ClassVar[type[LogCommitter]] = LogCommitter

    def create_writer(self, context: WriteContext) -> StreamWriter:
        return self.WRITER(self.log(context.schema), context)

    def create_committer(self, writer_id: str | None) -> StreamCommitter:
        return self.COMMITTER(self, writer_id)


_PARTS: dict[type, tuple[type, str]] = {
    LogConsumer: (ZooConsumers, "CONSUMER"),
    LogMetadata: (ZooConsumers, "METADATA"),
    LogWriter: (ZooProducers, "WRITER"),
    LogCommitter: (ZooProducers, "COMMITTER"),
}


_SPECIMENS: dict[type, tuple[Backend, type[Any]]] = {
    durable.DurableProducerFactory: (
        durable.streamfactory_backend(),
        durable.DurableHarness,
    ),
    envelope_writing.EnvelopesProducerFactory: (
        envelopes.streamfactory_backend(),
        envelopes.EnvelopesHarness,
    ),
    envelopes.EnvelopesConsumerFactory: (
        envelopes.streamfactory_backend(),
        envelopes.EnvelopesHarness,
    ),
    redelivering.RedeliveringConsumerFactory: (
        redelivering.streamfactory_backend(),
        redelivering.RedeliveringHarness,
    ),
    forgetful.ForgetfulConsumerFactory: (
        forgetful.streamfactory_backend(),
        forgetful.ForgetfulHarness,
    ),
}


def register(
    name: str, doc: str, case: str, backend: Backend, harness: type[Any] = MemoryHarness
) -> None:
    """Register a broken backend."""
    ZOO[name] = BrokenBackend(name, doc.strip(), case, backend, harness)


def caught_by(case: str) -> Callable[[type[Any]], type[Any]]:
    """Register a backend that is correct except for a broken class."""

    def put(broken: type[Any]) -> type[Any]:
        consumers: type[Any] = ZooConsumers
        producers: type[Any] = ZooProducers
        admin: type[Any] | None = streamfactory_backend().topic_admin
        if issubclass(broken, ZooConsumers):
            consumers = broken
        elif issubclass(broken, ZooProducers):
            producers = broken
        elif issubclass(broken, tuple(_SPECIMENS)):
            kind = next(kind for kind in _SPECIMENS if issubclass(broken, kind))
            whole, harness = _SPECIMENS[kind]
            if issubclass(broken, ConsumerFactory):
                whole = replace(whole, consumer_factory=broken)
            else:
                producer: type[Any] = broken
                whole = replace(whole, producer_factory=producer)
            register(broken.__name__, str(broken.__doc__), case, whole, harness)
            return broken
        elif issubclass(broken, TopicAdmin):
            admin = broken
        else:
            base = next(kind for kind in _PARTS if issubclass(broken, kind))
            factory, attribute = _PARTS[base]
            made = _importable(broken, factory, {attribute: broken})
            if factory is ZooConsumers:
                consumers = made
            else:
                producers = made
        sound = streamfactory_backend()
        backend = Backend(
            name=sound.name,
            doc=sound.doc,
            spi_level=1,
            options=sound.options,
            consumer_factory=consumers,
            producer_factory=producers,
            topic_admin=admin,
            yields=sound.yields,
        )
        register(broken.__name__, str(broken.__doc__), case, backend)
        return broken

    return put


def _importable(broken: type, factory: type, parts: dict[str, Any]) -> type:
    """A factory class that pickles by name, as a stranger's does."""
    name = f"{broken.__name__}Factory"
    made = type(name, (factory,), {**parts, "__module__": broken.__module__})
    setattr(sys.modules[broken.__module__], name, made)
    return made
