"""``flight``: durable streams on a central server, over Arrow Flight.

Many writers and readers on many machines share the topics of one server, which stores
them in an Arrow log: in memory, in a folder or in an object store. Topics have
partitions, offsets that count rows, replay while retained, and whole epochs, each
exactly once.
"""

from __future__ import annotations

from streamfactory.backends.flight.options import OPTIONS
from streamfactory.backends.flight.rules import check_options
from streamfactory.spi import Backend, Yields, hookimpl
from streamfactory.spi.hooks import import_later

__all__ = ["streamfactory_backend"]


@hookimpl
def streamfactory_backend() -> Backend:
    """The descriptor."""
    return Backend(
        name="flight",
        doc="Durable streams on a central Arrow Flight server.",
        spi_level=1,
        consumer_factory=import_later(f"{__name__}.reading", "FlightConsumerFactory"),
        producer_factory=import_later(f"{__name__}.writing", "FlightProducerFactory"),
        topic_admin=import_later(f"{__name__}.writing", "FlightTopicAdmin"),
        server=import_later(f"{__name__}.server", "FlightServer"),
        yields=Yields.EITHER,
        check_options=check_options,
        translate=import_later(f"{__name__}.protocol.failures", "from_status"),
        options=OPTIONS,
    )
