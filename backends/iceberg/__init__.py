"""``iceberg``: Apache Iceberg tables as streams.

A stream is a snapshot of the table, then the changes of each later snapshot on the
main branch: rows of data files that were added, removed, or marked as deleted.
Read-only. See `streamfactory.tables` for offsets.
"""

from __future__ import annotations

from streamfactory.backends.iceberg.errors import TRANSLATION
from streamfactory.backends.iceberg.options import OPTIONS
from streamfactory.backends.iceberg.reading import IcebergConsumerFactory
from streamfactory.spi import Backend, hookimpl
from streamfactory.tables import check_options

__all__ = ["IcebergConsumerFactory", "streamfactory_backend"]


@hookimpl
def streamfactory_backend() -> Backend:
    """The descriptor."""
    return Backend(
        name="iceberg",
        doc="Apache Iceberg tables: a snapshot, then the changes of each commit.",
        spi_level=1,
        consumer_factory=IcebergConsumerFactory,
        options=OPTIONS,
        translate=TRANSLATION,
        check_options=check_options,
    )
