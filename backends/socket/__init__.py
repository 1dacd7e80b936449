"""``socket``: plain Arrow streams over TCP and Unix sockets.

The peer can be any program that uses Arrow's stream format. A partition is an address;
a port range defines several. Rows of all writers of an address are merged, and every
reader of it gets all rows. Offsets count rows since the connection, which is the
incarnation. Nothing is stored: not replayable, not durable, at-most-once, no epochs.
Copy into a `file` stream to read rows again.
"""

from __future__ import annotations

from streamfactory.backends.socket.options import OPTIONS
from streamfactory.backends.socket.rules import check_options
from streamfactory.spi import Backend, hookimpl
from streamfactory.spi.hooks import import_later

__all__ = ["streamfactory_backend"]


@hookimpl
def streamfactory_backend() -> Backend:
    """The descriptor."""
    return Backend(
        name="socket",
        doc="Plain Arrow streams over TCP and Unix sockets, to and from any program.",
        spi_level=1,
        options=OPTIONS,
        check_options=check_options,
        consumer_factory=import_later(f"{__name__}.reading", "SocketConsumerFactory"),
        producer_factory=import_later(f"{__name__}.writing", "SocketProducerFactory"),
    )
