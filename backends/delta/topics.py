"""Administration of ``delta``: tables are created, merged, and lose old versions."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from streamfactory.backends.delta.committing import WritableDeltaTable
from streamfactory.backends.delta.table import DeltaTable
from streamfactory.tables.upkeep import TableAdmin

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamfactory.tables.writable import WritableTable


@final
class DeltaTopicAdmin(TableAdmin):
    """Administers one table."""

    def open_table(self) -> WritableTable:
        return WritableDeltaTable(self.config)

    def truncate(self, topic: str, before: Mapping[int, int]) -> None:
        """Remove versions whose changes lie before; rows of the table stay."""
        table = self.opened
        assert isinstance(table, WritableDeltaTable)
        for offset in before.values():
            table.clean(DeltaTable.layout.place(offset).commit)
