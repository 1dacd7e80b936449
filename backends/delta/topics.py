"""Administration of ``delta``: tables are created, and their small files merged."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from streamfactory.backends.delta.committing import WritableDeltaTable
from streamfactory.tables.upkeep import TableAdmin

if TYPE_CHECKING:
    from streamfactory.tables.writable import WritableTable


@final
class DeltaTopicAdmin(TableAdmin):
    """Administers one table."""

    def open_table(self) -> WritableTable:
        return WritableDeltaTable(self.config)
