"""Consumer factory of ``hudi``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamfactory.backends.hudi.merging import Merger
from streamfactory.backends.hudi.table import HudiTable
from streamfactory.tables import TableConsumerFactory, TableFiles, client_options

if TYPE_CHECKING:
    from streamfactory.tables import Table


class HudiConsumerFactory(TableConsumerFactory):
    """Reads one Hudi table."""

    def open_table(self) -> Table:
        config = self.config
        files = TableFiles.of(config)
        merger = Merger(config["path"], client_options(config))
        table = HudiTable(config, files, merger)
        table.identity()
        return table
