"""Consumer factory of ``delta``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamfactory.backends.delta.table import DeltaTable
from streamfactory.tables import TableConsumerFactory, TableFiles, client_options

if TYPE_CHECKING:
    from streamfactory.tables import Table


class DeltaConsumerFactory(TableConsumerFactory):
    """Reads one Delta table."""

    def open_table(self) -> Table:
        config = self.config
        files = TableFiles.of(config)
        table = DeltaTable(config, files, client_options(config))
        table.identity()
        return table
