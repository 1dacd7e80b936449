"""Producer factory of ``iceberg``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamfactory.backends.iceberg.appending import IcebergAppender
from streamfactory.tables.writing import TableProducerFactory

if TYPE_CHECKING:
    from streamfactory.tables.writing import WritableTable


class IcebergProducerFactory(TableProducerFactory):
    """Appends to one Iceberg table of a catalog."""

    def open_table(self) -> WritableTable:
        return IcebergAppender(self.config)
