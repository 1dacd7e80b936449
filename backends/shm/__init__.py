"""``shm``: streams in shared memory, between programs of one machine.

Topics have partitions, which are rings of Arrow messages in mapped files: readers use
them where they are. Offsets count rows, rows can be read again for as long as a ring
holds them, and any number of processes write whole epochs, each exactly once. The
content is lost with the machine. The format is described in `docs/shm-format.md`.
"""

from __future__ import annotations

from streamfactory.backends.shm.options import OPTIONS
from streamfactory.spi import Backend, Yields, hookimpl
from streamfactory.spi.hooks import import_later

__all__ = ["streamfactory_backend"]


@hookimpl
def streamfactory_backend() -> Backend:
    """The descriptor."""
    reading, writing = f"{__name__}.reading", f"{__name__}.writing"
    return Backend(
        name="shm",
        doc="Streams in shared memory, between programs of one machine.",
        spi_level=1,
        consumer_factory=import_later(reading, "ShmConsumerFactory"),
        producer_factory=import_later(writing, "ShmProducerFactory"),
        topic_admin=import_later(writing, "ShmTopicAdmin"),
        yields=Yields.EITHER,
        options=OPTIONS,
    )
