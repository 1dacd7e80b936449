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

from streamfactory.arrowlog import LOG_OPTIONS, message_schema
from streamfactory.backends.memory.reading import MemoryConsumerFactory
from streamfactory.backends.memory.stores import store
from streamfactory.backends.memory.writing import (
    MemoryProducerFactory,
    MemoryTopicAdmin,
)
from streamfactory.spi import Backend, Option, Yields, hookimpl

__all__ = [
    "MemoryConsumerFactory",
    "MemoryProducerFactory",
    "MemoryTopicAdmin",
    "message_schema",
    "store",
    "streamfactory_backend",
]


@hookimpl
def streamfactory_backend() -> Backend:
    """The descriptor."""
    return Backend(
        name="memory",
        doc="Streams inside one process: for tests, examples and notebooks.",
        spi_level=1,
        consumer_factory=MemoryConsumerFactory,
        producer_factory=MemoryProducerFactory,
        topic_admin=MemoryTopicAdmin,
        yields=Yields.EITHER,
        options=(
            Option(
                "store", "Name of the store that holds the topic.", default="default"
            ),
            *LOG_OPTIONS,
        ),
    )
