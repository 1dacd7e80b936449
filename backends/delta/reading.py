"""Consumer factory of ``delta``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamfactory.backends.delta.table import DeltaTable
from streamfactory.tables import TableConsumerFactory, TableFiles

if TYPE_CHECKING:
    from streamfactory.tables import Table


class DeltaConsumerFactory(TableConsumerFactory):
    """Reads one Delta table."""

    def open_table(self) -> Table:
        config = self.config
        table = DeltaTable(config, TableFiles.of(config))
        table.identity()
        return table
