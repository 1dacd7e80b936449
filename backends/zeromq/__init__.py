"""``zeromq``: messages over ZeroMQ sockets (PUB/SUB, PUSH/PULL, DEALER/ROUTER).

Senders number their rows, so readers record missing rows as losses and drop duplicates.
With dealer-router a sender keeps rows until the reader has stored them. Messages of
other programs are supported too. ZeroMQ stores nothing: without a spool a stream is
neither replayable nor durable.
"""

from __future__ import annotations

from streamfactory.backends.zeromq.options import OPTIONS
from streamfactory.backends.zeromq.rules import check_options
from streamfactory.spi import Backend, Yields, hookimpl
from streamfactory.spi.hooks import import_later, require_installed

__all__ = ["streamfactory_backend"]

require_installed("zmq")


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
        consumer_factory=import_later(f"{__name__}.reading", "ZeromqConsumerFactory"),
        producer_factory=import_later(f"{__name__}.writing", "ZeromqProducerFactory"),
        yields=Yields.EITHER,
    )
