"""Consumer factory of ``iceberg``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamfactory.backends.iceberg.table import IcebergTable
from streamfactory.tables import TableConsumerFactory, TableFiles

if TYPE_CHECKING:
    from streamfactory.tables import Table


class IcebergConsumerFactory(TableConsumerFactory):
    """Reads one Iceberg table."""

    def open_table(self) -> Table:
        config = self.config
        table = IcebergTable(config, TableFiles.of(config))
        table.identity()
        return table
