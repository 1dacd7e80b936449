"""``iceberg``: Apache Iceberg tables as streams.

A stream is a snapshot of the table, then the changes of each later snapshot on the
main branch: rows of data files that were added, removed, or marked as deleted.
Epochs are written through the table's catalog, each as one snapshot. See
`streamfactory.tables` for offsets.
"""

from __future__ import annotations

from streamfactory.backends.iceberg.options import OPTIONS
from streamfactory.backends.iceberg.rules import check_options
from streamfactory.spi import Backend, hookimpl
from streamfactory.spi.hooks import import_later, require_installed
from streamfactory.tables import table_folder

__all__ = ["streamfactory_backend"]

require_installed("pyiceberg", "fastavro")


@hookimpl
def streamfactory_backend() -> Backend:
    """The descriptor."""
    return Backend(
        name="iceberg",
        doc="Iceberg tables: a snapshot, then changes; appended, or written by key.",
        spi_level=1,
        consumer_factory=import_later(f"{__name__}.reading", "IcebergConsumerFactory"),
        producer_factory=import_later(f"{__name__}.writing", "IcebergProducerFactory"),
        topic_admin=import_later(f"{__name__}.topics", "IcebergTopicAdmin"),
        options=OPTIONS,
        client_namespaces=frozenset({"catalog"}),
        translate=import_later(f"{__name__}.errors", "translate"),
        check_options=check_options,
        markers=(table_folder("iceberg"),),
    )
