"""Reading a spool by offset: the consumer factory of a stream with ``spool.path``.

It replaces the transport's factory when the stream is read. Only receivers read the
transport itself.
"""

# Overriding methods keep the docstring, and the arguments, of their contract.
# ruff: noqa: ARG002, D102

from __future__ import annotations

import copyreg
from abc import ABCMeta
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, cast

from streamfactory.arrowlog import LogConsumer, LogConsumerFactory, LogMetadata
from streamfactory.arrowlog.disk.sharing import disk_handle
from streamfactory.spi import (
    Backend,
    Claims,
    ConsumerFactory,
    Partition,
    PartitionInfo,
    TopicNotFound,
)
from streamfactory.wiring.options.spool import PATH, store_config
from streamfactory.wiring.spool.administration import SpoolTopicAdmin
from streamfactory.wiring.spool.rows import delivered_schema, from_stored

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import pyarrow as pa

    from streamfactory.arrowlog import Log
    from streamfactory.arrowlog.disk import DiskLogStore
    from streamfactory.spi import (
        Loss,
        MetadataProvider,
        PartitionLevelConsumer,
        StreamConfig,
    )

NO_SPOOL = (
    "start a receiver, `streamfactory spool NAME`, or set spool.receiver=embedded"
)


class SpoolConsumer(LogConsumer):
    """Reads one partition of a spool."""

    def __init__(
        self,
        log: Log,
        partition: Partition,
        fields: Sequence[str] | None,
        delivered: pa.Schema,
    ) -> None:
        super().__init__(log, partition, fields)
        self._delivered = delivered

    def shape(
        self, rows: pa.RecordBatch, start: int
    ) -> tuple[pa.RecordBatch, Sequence[Loss]]:
        """See `LogConsumer.shape`."""
        return from_stored(rows, self._partition, start, self._delivered, self._fields)


class SpoolMetadata(LogMetadata):
    """Metadata of the spool."""

    def fetch_partitions(
        self, topics: Sequence[str], known: Collection[Partition]
    ) -> Sequence[PartitionInfo]:
        try:
            return super().fetch_partitions(topics, known)
        except TopicNotFound as error:
            raise _not_yet(error) from error

    def fetch_schema(self, topic: str) -> pa.Schema:
        try:
            log = self._topics.open(topic)
        except TopicNotFound as error:
            raise _not_yet(error) from error
        return delivered_schema(log.schema, self._place)

    @property
    def _place(self) -> str:
        return str(self._factory.config[PATH])


class _Spooled(ABCMeta):
    """Type of the factories of `spooled`, which pickle cannot import by name."""


class SpoolConsumerFactory(LogConsumerFactory, metaclass=_Spooled):
    """Reads the spool of one stream. Created by `spooled`, for one transport."""

    CLAIMS: ClassVar = Claims(replayable=True, durable=True, shared=True)
    TRANSPORT: ClassVar[type[ConsumerFactory]]
    """The factory that receivers use."""

    def __init__(self, config: StreamConfig) -> None:
        super().__init__(config)
        self._handle = disk_handle(store_config(config))

    def store(self) -> DiskLogStore:
        return self._handle.get()

    def create_partition_level_consumer(
        self,
        client_id: str,
        partition: Partition,
        fields_to_read: Sequence[str] | None = None,
    ) -> PartitionLevelConsumer:
        log = self.store().open(partition.topic)
        delivered = delivered_schema(log.schema, str(self.config[PATH]))
        return SpoolConsumer(log, partition, fields_to_read, delivered)

    def create_metadata_provider(self, client_id: str) -> MetadataProvider:
        return SpoolMetadata(self)

    def claims(self) -> Claims:
        return replace(self.CLAIMS, durable=self.config["spool.fsync"] == "always")

    def transport_claims(self) -> Claims:
        """Return the claims of the transport; connects to nothing."""
        transport = self.TRANSPORT(self.config)
        try:
            return transport.claims()
        finally:
            transport.close()

    def close(self) -> None:
        self._handle.close()


@cache
def spooled(transport: type[ConsumerFactory]) -> type[SpoolConsumerFactory]:
    """Return the factory class that reads the spools of a transport.

    Args:
        transport: The consumer factory of the stream type.
    """
    name = f"Spooled{transport.__name__}"
    members = {"TRANSPORT": transport, "__module__": __name__}
    made: Any = _Spooled(name, (SpoolConsumerFactory,), members)
    return cast("type[SpoolConsumerFactory]", made)


def _reduced(kind: type[SpoolConsumerFactory]) -> Any:
    """How such a factory class is pickled: by its transport."""
    transport = vars(kind).get("TRANSPORT")
    return kind.__qualname__ if transport is None else (spooled, (transport,))


copyreg.pickle(_Spooled, _reduced)  # type: ignore[arg-type]


def read_through_spool(backend: Backend, config: StreamConfig) -> Backend:
    """Return the backend that reads a stream: that of its spool, if it has one.

    Args:
        backend: Backend of the stream's type.
        config: Configuration of the stream.
    """
    transport = backend.consumer_factory
    if PATH not in config or transport is None:
        return backend
    return replace(
        backend,
        consumer_factory=spooled(transport),
        topic_admin=SpoolTopicAdmin,
        translate=None,
    )


def transport_of(backend: Backend) -> type[ConsumerFactory] | None:
    """Return the transport of a backend that reads a spool; None for other backends."""
    made = backend.consumer_factory
    if made is not None and issubclass(made, SpoolConsumerFactory):
        return made.TRANSPORT
    return None


def _not_yet(error: TopicNotFound) -> TopicNotFound:
    what = f"the spool is empty: {error.what}"
    return TopicNotFound(what, remedy=NO_SPOOL)
