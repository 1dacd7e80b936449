"""Producer factory of ``delta``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamfactory.backends.delta.appending import DeltaAppender
from streamfactory.tables.writing import TableProducerFactory

if TYPE_CHECKING:
    from streamfactory.tables.writing import WritableTable


class DeltaProducerFactory(TableProducerFactory):
    """Appends to one Delta table."""

    def open_table(self) -> WritableTable:
        return DeltaAppender(self.config)
