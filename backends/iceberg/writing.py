"""Producer factory of ``iceberg``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamfactory.backends.iceberg.committing import WritableIcebergTable
from streamfactory.tables.writing import TableProducerFactory

if TYPE_CHECKING:
    from streamfactory.tables.writable import WritableTable


class IcebergProducerFactory(TableProducerFactory):
    """Writes one Iceberg table of a catalog."""

    def open_table(self) -> WritableTable:
        return WritableIcebergTable(self.config)
