"""Consumer factory of ``iceberg``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamfactory.backends.iceberg.catalogs import TableCatalog
from streamfactory.backends.iceberg.metadata import IcebergMetadata
from streamfactory.backends.iceberg.table import IcebergTable
from streamfactory.tables import TableConsumerFactory, TableFiles
from streamfactory.tables.places import plain_location

if TYPE_CHECKING:
    from streamfactory.tables import Table


class IcebergConsumerFactory(TableConsumerFactory):
    """Reads one Iceberg table."""

    def open_table(self) -> Table:
        config = self.config
        if "table" not in config:
            files = TableFiles.of(config)
            metadata = IcebergMetadata(files, config["log.max.bytes"])
        else:
            catalog = TableCatalog(config)
            location = plain_location(catalog.load().location())
            files = TableFiles.of(config, location)
            metadata = IcebergMetadata(files, config["log.max.bytes"], catalog)
        table = IcebergTable(config, files, metadata)
        table.identity()
        return table
