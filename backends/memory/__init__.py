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

from streamfactory.backends.memory.reading import MemoryConsumerFactory
from streamfactory.backends.memory.stores import message_schema, store
from streamfactory.backends.memory.writing import MemoryProducerFactory
from streamfactory.spi import BOOLEAN, INTEGER, Backend, Option, Yields, hookimpl

__all__ = [
    "MemoryConsumerFactory",
    "MemoryProducerFactory",
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
