"""``file``: durable streams on nothing but a file system, or an object store.

Topics of partitions whose offsets count rows: replayed while retained, written in whole
epochs, each once, by any number of processes. What lies in the folder is described in
`docs/log-format.md`. With ``format`` other than log it reads Arrow files that others
wrote, also while they grow.
"""

from __future__ import annotations

from streamfactory.backends.file.options import OPTIONS
from streamfactory.backends.file.reading import FileConsumerFactory
from streamfactory.backends.file.rules import check_options
from streamfactory.backends.file.writing import FileProducerFactory, FileTopicAdmin
from streamfactory.spi import Backend, Yields, hookimpl

__all__ = [
    "FileConsumerFactory",
    "FileProducerFactory",
    "FileTopicAdmin",
    "streamfactory_backend",
]


@hookimpl
def streamfactory_backend() -> Backend:
    """The descriptor."""
    return Backend(
        name="file",
        doc="Durable streams in files: topics with replay, and Arrow files of others.",
        spi_level=1,
        check_options=check_options,
        consumer_factory=FileConsumerFactory,
        producer_factory=FileProducerFactory,
        topic_admin=FileTopicAdmin,
        yields=Yields.EITHER,
        options=OPTIONS,
    )
