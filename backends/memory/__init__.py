"""``memory``: streams within one process, for tests, examples and notebooks.

No network and no dependencies. Topics have several partitions, offsets that count rows,
replay while rows are retained, growth, retention, and whole epochs, each exactly once.
The content is lost when the process ends and is not visible to other processes: it is
neither durable nor shared. A forked child starts with empty stores.

A topic is created by its first writer, or explicitly::

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
        doc="Streams within one process: for tests, examples and notebooks.",
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
