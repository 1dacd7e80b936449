"""Administration of ``iceberg``: tables are created, merged, and lose old snapshots."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from streamfactory.backends.iceberg.committing import WritableIcebergTable
from streamfactory.backends.iceberg.table import IcebergTable
from streamfactory.tables.upkeep import TableAdmin

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamfactory.tables.writable import WritableTable


@final
class IcebergTopicAdmin(TableAdmin):
    """Administers one table."""

    def open_table(self) -> WritableTable:
        return WritableIcebergTable(self.config)

    def truncate(self, topic: str, before: Mapping[int, int]) -> None:
        """Expire the snapshots whose changes lie before; rows of the table stay."""
        table = self.opened
        assert isinstance(table, WritableIcebergTable)
        for offset in before.values():
            table.expire(IcebergTable.layout.place(offset).commit)
