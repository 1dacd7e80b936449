"""``flight``: durable streams on a central server, over Arrow Flight.

Many writers and readers on many machines share the topics of one server, which stores
them in an Arrow log: in memory, in a folder or in an object store. Topics have
partitions, offsets that count rows, replay while retained, and whole epochs, each
exactly once.
"""

from __future__ import annotations

from streamfactory.backends.flight.options import OPTIONS
from streamfactory.backends.flight.protocol.failures import from_status
from streamfactory.backends.flight.reading import FlightConsumerFactory
from streamfactory.backends.flight.rules import check_options
from streamfactory.backends.flight.server import FlightServer
from streamfactory.backends.flight.writing import (
    FlightProducerFactory,
    FlightTopicAdmin,
)
from streamfactory.spi import Backend, Yields, hookimpl

__all__ = [
    "FlightConsumerFactory",
    "FlightProducerFactory",
    "FlightServer",
    "FlightTopicAdmin",
    "streamfactory_backend",
]


@hookimpl
def streamfactory_backend() -> Backend:
    """The descriptor."""
    return Backend(
        name="flight",
        doc="Durable streams on a central Arrow Flight server.",
        spi_level=1,
        consumer_factory=FlightConsumerFactory,
        producer_factory=FlightProducerFactory,
        topic_admin=FlightTopicAdmin,
        server=FlightServer,
        yields=Yields.EITHER,
        check_options=check_options,
        translate=from_status,
        options=OPTIONS,
    )
