"""``zeromq``: messages over ZeroMQ sockets (PUB/SUB, PUSH/PULL, DEALER/ROUTER).

Senders of this backend number their rows: readers record what is missing as losses and
drop what comes twice. With dealer-router a sender keeps rows until the reader has
stored them. Other programs' messages are read too. Nothing is kept by ZeroMQ: a stream
is neither replayable nor durable without a spool in front of it.
"""

from __future__ import annotations

from streamfactory.backends.zeromq.options import OPTIONS
from streamfactory.backends.zeromq.reading import ZeromqConsumerFactory
from streamfactory.backends.zeromq.rules import check_options
from streamfactory.backends.zeromq.writing import ZeromqProducerFactory
from streamfactory.spi import Backend, Yields, hookimpl

__all__ = [
    "ZeromqConsumerFactory",
    "ZeromqProducerFactory",
    "streamfactory_backend",
]


@hookimpl
def streamfactory_backend() -> Backend:
    """The descriptor."""
    return Backend(
        name="zeromq",
        doc="Messages over ZeroMQ: PUB/SUB, PUSH/PULL, and DEALER/ROUTER with "
        "acknowledgements.",
        spi_level=1,
        options=OPTIONS,
        check_options=check_options,
        consumer_factory=ZeromqConsumerFactory,
        producer_factory=ZeromqProducerFactory,
        yields=Yields.EITHER,
    )
