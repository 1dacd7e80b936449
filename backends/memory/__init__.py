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

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from streamfactory.arrowlog import LOG_OPTIONS
from streamfactory.spi import Backend, Option, Yields, hookimpl
from streamfactory.spi.hooks import import_later

if TYPE_CHECKING:
    from streamfactory.arrowlog import message_schema
    from streamfactory.backends.memory.reading import MemoryConsumerFactory
    from streamfactory.backends.memory.stores import store
    from streamfactory.backends.memory.writing import MemoryProducerFactory

__all__ = [
    "MemoryConsumerFactory",
    "MemoryProducerFactory",
    "message_schema",
    "store",
    "streamfactory_backend",
]

_WHERE: Final = {
    "MemoryConsumerFactory": f"{__name__}.reading",
    "MemoryProducerFactory": f"{__name__}.writing",
    "message_schema": "streamfactory.arrowlog",
    "store": f"{__name__}.stores",
}


@hookimpl
def streamfactory_backend() -> Backend:
    """The descriptor."""
    return Backend(
        name="memory",
        doc="Streams within one process: for tests, examples and notebooks.",
        spi_level=1,
        consumer_factory=import_later(f"{__name__}.reading", "MemoryConsumerFactory"),
        producer_factory=import_later(f"{__name__}.writing", "MemoryProducerFactory"),
        topic_admin=import_later(f"{__name__}.writing", "MemoryTopicAdmin"),
        yields=Yields.EITHER,
        options=(
            Option(
                "store", "Name of the store that holds the topic.", default="default"
            ),
            *LOG_OPTIONS,
        ),
    )


def __getattr__(name: str) -> Any:
    # Lazy: the options are validated without Arrow.
    if name not in _WHERE:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(_WHERE[name]), name)
