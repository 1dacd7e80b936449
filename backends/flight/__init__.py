"""``flight``: durable streams on a central server, over Arrow Flight.

Many writers and readers on many machines share the topics of one server, which keeps
them in an Arrow log: in memory, in a folder or in an object store. Partitions, offsets
that count rows, replay while retained, whole epochs, each once.
"""

from __future__ import annotations

from streamfactory.arrowlog import LOG_OPTIONS
from streamfactory.backends.flight.protocol.failures import from_status
from streamfactory.backends.flight.reading import FlightConsumerFactory
from streamfactory.backends.flight.server import FlightServer
from streamfactory.backends.flight.writing import (
    FlightProducerFactory,
    FlightTopicAdmin,
)
from streamfactory.spi import PERIOD, Backend, Option, Yields, hookimpl

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
        translate=from_status,
        options=(
            Option(
                "location",
                "Address of the server: grpc://host:port, or grpc+tls://host:port.",
                required=True,
                example="grpc://127.0.0.1:8815",
            ),
            Option(
                "upload.timeout.millis",
                "How long the rows of one task's attempt may take to arrive.",
                PERIOD,
                default="1h",
                minimum=1000,
                applies=frozenset({"write", "spark"}),
            ),
            *LOG_OPTIONS,
        ),
    )
