"""Producer factory of ``delta``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamfactory.backends.delta.committing import WritableDeltaTable
from streamfactory.tables.writing import TableProducerFactory

if TYPE_CHECKING:
    from streamfactory.tables.writable import WritableTable


class DeltaProducerFactory(TableProducerFactory):
    """Writes one Delta table."""

    def open_table(self) -> WritableTable:
        return WritableDeltaTable(self.config)
