"""``file``: durable streams in a file system or an object store.

Topics have partitions whose offsets count rows. They can be read again while retained,
and any number of processes write whole epochs, each exactly once. The format is
described in `docs/log-format.md`. With a ``format`` other than log, Arrow files of
other programs are read, also while they grow.
"""

from __future__ import annotations

from streamfactory.arrowlog.disk.names import TOPIC_SUFFIX
from streamfactory.backends.file.options import OPTIONS
from streamfactory.backends.file.rules import check_options
from streamfactory.spi import Backend, Yields, hookimpl
from streamfactory.spi.hooks import import_later

__all__ = ["streamfactory_backend"]


@hookimpl
def streamfactory_backend() -> Backend:
    """The descriptor."""
    reading, writing = f"{__name__}.reading", f"{__name__}.writing"
    return Backend(
        name="file",
        doc="Durable streams in files, and Arrow files of other programs.",
        spi_level=1,
        check_options=check_options,
        consumer_factory=import_later(reading, "FileConsumerFactory"),
        producer_factory=import_later(writing, "FileProducerFactory"),
        topic_admin=import_later(writing, "FileTopicAdmin"),
        yields=Yields.EITHER,
        options=OPTIONS,
        markers=(f"*{TOPIC_SUFFIX}",),
    )
