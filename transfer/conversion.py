"""What a copy makes of the rows that it reads, before they are written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, final

import pyarrow as pa

if TYPE_CHECKING:
    from streamfactory.spi import MessageBatch
    from streamfactory.wiring.writing.diverting import Diversion


class Conversion(Protocol):
    """Makes other rows of a source's batches, for one pass."""

    schema: pa.Schema
    """Of what `apply` answers."""

    def apply(self, batch: MessageBatch) -> pa.RecordBatch:
        """The rows as the sink is to have them."""

    def divert(self, diversion: Diversion) -> None:
        """Say who takes dead letters, before the first batch."""

    def close(self) -> None:
        """Close, at the end of the pass."""


@final
class Route(Conversion):
    """What rows are given to the sink, and to which of its partitions they go.

    Args:
        schema: Of the source's batches.
        dropped: Columns that stay behind.
        count: Of the sink's partitions, where a partition stays together; None where
            keys choose.
    """

    def __init__(self, schema: pa.Schema, dropped: set[str], count: int | None) -> None:
        dropped = dropped if count is None else dropped | {"_partition"}
        self._kept = [i for i, f in enumerate(schema) if f.name not in dropped]
        self._count = count
        fields = [schema.field(index) for index in self._kept]
        if count is not None:
            fields.append(pa.field("_partition", pa.int32(), nullable=False))
        self.schema = pa.schema(fields)

    def divert(self, diversion: Diversion) -> None:
        """See `Conversion`: whatever is bad, the reader tells."""

    def close(self) -> None:
        """Nothing is open."""

    def apply(self, batch: MessageBatch) -> pa.RecordBatch:
        """The rows as the sink is to have them."""
        columns = [batch.rows.column(index) for index in self._kept]
        if self._count is not None:
            number = pa.scalar(batch.partition.id % self._count, pa.int32())
            columns.append(pa.repeat(number, batch.num_rows))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)
