"""Administration of ``iceberg``: tables are created, and their small files merged."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from streamfactory.backends.iceberg.committing import WritableIcebergTable
from streamfactory.tables.upkeep import TableAdmin

if TYPE_CHECKING:
    from streamfactory.tables.writable import WritableTable


@final
class IcebergTopicAdmin(TableAdmin):
    """Administers one table."""

    def open_table(self) -> WritableTable:
        return WritableIcebergTable(self.config)
