"""``socket``: bare Arrow streams over TCP and Unix sockets.

The other side may be any program that speaks Arrow's stream format; needs nothing
installed. A partition is an address, a port range gives several. Rows of all writers of
an address are merged, and go to every reader of it. Offsets count rows since the
connection was made, which is the incarnation. Nothing is kept: neither replayable nor
durable, at-most-once, no epochs. Who wants to read again copies into a `file` stream.
"""

from __future__ import annotations

from streamfactory.backends.socket.options import OPTIONS
from streamfactory.backends.socket.reading import SocketConsumerFactory
from streamfactory.backends.socket.rules import check_options
from streamfactory.backends.socket.writing import SocketProducerFactory
from streamfactory.spi import Backend, hookimpl

__all__ = [
    "SocketConsumerFactory",
    "SocketProducerFactory",
    "streamfactory_backend",
]


@hookimpl
def streamfactory_backend() -> Backend:
    """The descriptor."""
    return Backend(
        name="socket",
        doc="Bare Arrow streams over TCP and Unix sockets, to and from any program.",
        spi_level=1,
        options=OPTIONS,
        check_options=check_options,
        consumer_factory=SocketConsumerFactory,
        producer_factory=SocketProducerFactory,
    )
