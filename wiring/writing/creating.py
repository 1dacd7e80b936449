"""Creates topics before they are written."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from streamfactory.conversion.conform import check_columns
from streamfactory.spi import MisuseError, TopicNotFound, Unsupported, envelope_schema
from streamfactory.wiring.core.clock import Clock
from streamfactory.wiring.core.guard import Guard
from streamfactory.wiring.reading.metadata import Metadata
from streamfactory.wiring.reading.source import unique_client_id

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfactory.wiring.config.settled import Configured
    from streamfactory.wiring.writing.sink import Sink


def ensure_topic(
    sink: Sink,
    schema: pa.Schema,
    *,
    create: bool = True,
    partitions: int | None = None,
) -> bool:
    """Create the topic of a sink if it does not exist.

    Types without topic administration are left unchanged.

    Args:
        sink: An open sink; determines whether the topic has undecoded messages.
        schema: Schema of the rows; the framework's columns are removed.
        create: Whether the topic may be created.
        partitions: Number of partitions of a new topic; None for that of the
            configuration.

    Returns:
        True if this call created it.

    Raises:
        TopicNotFound: permanent; it does not exist, and may not be created.
        SchemaMismatch: permanent; a column is repeated, or there is none.
        Unsupported: misuse; partitions are set for a type that cannot create topics.
        StreamError: Raised by the backend.
    """
    config, configured = sink.config, sink.configured
    there = _is_there(configured)
    if there:
        return False
    if not create:
        if there is None:
            return False
        msg = f"the topic {config.topic!r} does not exist, and may not be created"
        raise TopicNotFound(msg, stream=config.name, remedy="omit --no-create")
    if configured.backend.topic_admin is None:
        if partitions is None:
            return False
        msg = (
            f"partitions cannot be set: stream type {config.type!r} cannot "
            f"create topics"
        )
        remedy = "create the topic with the tools of the sink"
        raise Unsupported(msg, stream=config.name, remedy=remedy)
    stored = sink.schema
    if stored is None:
        special = sink.framework_columns
        plain = pa.schema([field for field in schema if field.name not in special])
        check_columns(plain)
        stored = sink.canonical(plain)
    elif stored.equals(envelope_schema()):
        stored = None
    return _create(configured, stored, partitions)


def _create(
    configured: Configured, schema: pa.Schema | None, partitions: int | None
) -> bool:
    config, backend = configured.config, configured.backend
    assert backend.topic_admin is not None
    guard = Guard(config, backend, Clock())
    with ExitStack() as stack:
        stack.enter_context(guard.border())
        admin = backend.topic_admin(config)
        stack.callback(admin.close)
        try:
            admin.create(config.topic, schema, partitions)
        except MisuseError:
            if not _is_there(configured):
                raise
            return False  # created by another process
    return True


def _is_there(configured: Configured) -> bool | None:
    """Whether the topic exists; None if the type cannot determine it."""
    if configured.backend.consumer_factory is None:
        return None
    if "topic.name" not in configured.config:
        return None
    with metadata_of(configured) as metadata:
        try:
            metadata.partitions()
        except TopicNotFound:
            return False
    return True


@contextmanager
def metadata_of(configured: Configured) -> Iterator[Metadata]:
    """The metadata of the topic that a sink writes to.

    Args:
        configured: The configuration of the sink; its type can also be read.
    """
    config, backend = configured.config, configured.backend
    assert backend.consumer_factory is not None
    guard = Guard(config, backend, Clock())
    with ExitStack() as stack:
        with guard.border():
            factory = backend.consumer_factory(config)
        stack.callback(factory.close)
        name = unique_client_id("streamfactory-topic")
        metadata = Metadata(config, factory, guard, name)
        stack.callback(metadata.close)
        yield metadata
