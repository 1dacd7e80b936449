"""Refuses to write rows into the topic that they are read from.

Every run would copy what the runs before it wrote.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamfactory.spi import ConfigError, TopicNotFound
from streamfactory.wiring.writing.creating import metadata_of

if TYPE_CHECKING:
    from streamfactory.spi import Backend, StreamConfig
    from streamfactory.wiring.config.settled import Configured
    from streamfactory.wiring.reading.source import Source


def same_topic(one: StreamConfig, other: StreamConfig, backend: Backend) -> bool:
    """Whether two configurations name the same topic at the same place.

    Connects to nothing: one place by two names is found by `refuse_cycle`.

    Args:
        one: A valid configuration.
        other: Another one.
        backend: The type of ``one``.
    """
    if one.type != other.type or "topic.name" not in one.settings:
        return False
    # What applies to readers or writers only does not say where a topic is.
    keys = [option.key for option in backend.options if not option.applies]
    keys.append("topic.name")
    texts = [
        [config.settings[key].text if key in config.settings else None for key in keys]
        for config in (one, other)
    ]
    return texts[0] == texts[1]


def refuse_cycle(source: Source, sink: Configured) -> None:
    """Refuse a sink that writes to the topic of the source.

    Topics with an incarnation are compared by it, whatever the type and the address.

    Args:
        source: An open source.
        sink: The configuration of the sink.

    Raises:
        ConfigError: config; both are the same topic.
        StreamError: Raised by either backend.
    """
    config = sink.config
    same = same_topic(source.config, config, sink.backend)
    if not same and (written := _incarnations(sink)):
        same = any(info.incarnation in written for info in source.metadata.partitions())
    if same:
        msg = f"the topic {config.topic!r} is both read and written: "
        msg += f"the source is {source.config.name!r}"
        remedy = "write to another topic"
        raise ConfigError(msg, stream=config.name, remedy=remedy)


def _incarnations(configured: Configured) -> set[str]:
    """The incarnations of a topic's partitions; empty if the type has none."""
    backend = configured.backend
    if backend.consumer_factory is None or backend.topic_admin is None:
        return set()
    with metadata_of(configured) as metadata:
        try:
            found = {info.incarnation for info in metadata.partitions()}
        except TopicNotFound:
            return set()
    return {incarnation for incarnation in found if incarnation is not None}
