"""``push``: the push tables of this process as streams.

A table that `streamfactory.push_table` was given a name for is the topic of that name.
Reading by configuration takes the place of the table's reader, writing that of a
producer. A partition is a lane, an offset the number of a row in it. Nothing is kept:
neither replayable nor durable nor shared, at-most-once, no epochs.
"""

from __future__ import annotations

from streamfactory.spi import PERIOD, Backend, Option, Yields, hookimpl
from streamfactory.spi.hooks import import_later

__all__ = ["streamfactory_backend"]


@hookimpl
def streamfactory_backend() -> Backend:
    """The descriptor."""
    return Backend(
        name="push",
        doc="Push tables of this process: rows that a program pushes into a query.",
        spi_level=1,
        consumer_factory=import_later(f"{__name__}.reading", "PushConsumerFactory"),
        producer_factory=import_later(f"{__name__}.writing", "PushProducerFactory"),
        yields=Yields.EITHER,
        options=(
            Option(
                "write.timeout.millis",
                "How long a write waits for the reader to make room.",
                PERIOD,
                default="5m",
                applies=frozenset({"write"}),
            ),
        ),
    )
