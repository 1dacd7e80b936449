"""What a copy makes of the rows that it reads, before they are written."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, final

import pyarrow as pa

from streamfactory.spi import SchemaMismatch

if TYPE_CHECKING:
    from streamfactory.engines.row_query import RowQuery
    from streamfactory.spi import MessageBatch, Partition, Position
    from streamfactory.wiring.reading.source import Source
    from streamfactory.wiring.writing.sink import Sink


class Converted(NamedTuple):
    """What a conversion makes of one batch."""

    rows: pa.RecordBatch
    """As the sink is to have them."""
    letters: pa.RecordBatch | None = None
    """Dead letters, as they are to be kept, none of which is committed already."""


class Conversion(Protocol):
    """Makes other rows of a source's batches, for one pass."""

    schema: pa.Schema
    """Of what `apply` answers."""

    def begin(self, position: Position | None) -> None:
        """Begin at a position of the source; None before the first run.

        Called once, before `apply`.
        """

    def apply(self, batch: MessageBatch) -> Converted:
        """Convert a batch that has rows."""

    @property
    def due(self) -> bool:
        """Whether what it writes beside the sink is to be committed now."""
        return False

    def commit(self, position: Position) -> None:
        """Commit what it writes beside the sink, which commits the position next."""
        del position

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

    def __init__(
        self, schema: pa.Schema, dropped: frozenset[str], count: int | None
    ) -> None:
        dropped = dropped if count is None else dropped | {"_partition"}
        self._kept = [i for i, f in enumerate(schema) if f.name not in dropped]
        self._count = count
        fields = [schema.field(index) for index in self._kept]
        if count is not None:
            fields.append(pa.field("_partition", pa.int32(), nullable=False))
        self.schema = pa.schema(fields)

    def begin(self, position: Position | None) -> None:
        """Nothing depends on it."""

    def close(self) -> None:
        """Nothing is open."""

    def apply(self, batch: MessageBatch) -> Converted:
        """See `Conversion`: the dead letters are those of the reader."""
        return Converted(self.of(batch.rows, batch.partition))

    def of(self, rows: pa.RecordBatch, partition: Partition) -> pa.RecordBatch:
        """Return rows of a partition as the sink gets them."""
        columns = [rows.column(index) for index in self._kept]
        if self._count is not None:
            number = pa.scalar(partition.id % self._count, pa.int32())
            columns.append(pa.repeat(number, rows.num_rows))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


@final
class Queried(Conversion):
    """The rows that a query makes of those of a batch.

    Args:
        query: The query.
        route: Of the rows that it returns.
    """

    def __init__(self, query: RowQuery, route: Route) -> None:
        self._query, self._route = query, route
        self.schema = route.schema

    def begin(self, position: Position | None) -> None:
        """Nothing depends on it."""

    def close(self) -> None:
        """Nothing is open."""

    def apply(self, batch: MessageBatch) -> Converted:
        """See `Conversion`.

        Raises:
            SchemaMismatch: permanent; a value cannot be computed.
        """
        try:
            rows = self._query.apply(batch.rows)
        except SchemaMismatch as error:
            rows_are = f"rows of {batch.partition} from offset {batch.first_offset} "
            error.what = f"{rows_are}up to {batch.next_offset}: {error.what}"
            raise
        return Converted(self._route.of(rows, batch.partition))


def route_between(
    source: Source, sink: Sink, *, carried: bool, query: RowQuery | None = None
) -> Conversion:
    """Return what makes the rows of a sink of those of a source.

    Args:
        source: The source.
        sink: The sink.
        carried: Whether both are streams of messages: see `left_out`.
        query: Makes the rows to write of those of the source.

    Raises:
        SchemaMismatch: permanent; the source has a column ``_partition``.
    """
    partitions = len(source.metadata.partitions())
    count = sink.partition_count()
    keyed = carried or bool(sink.config.get("producer.key.columns"))
    kept = partitions == count or not keyed
    schema, added = source.schema, source.added_columns
    dropped = left_out(source, sink, carried=carried)
    if "_partition" in set(schema.names) - added:
        msg = "the source has a column '_partition', which in rows to write is "
        msg += "the partition that they go to"
        remedy = "copy the other columns, or rename it in the source"
        raise SchemaMismatch(msg, stream=source.config.name, remedy=remedy)
    if query is None:
        return Route(schema, dropped, count if kept else None)
    kept = kept and "_partition" not in query.computed
    route = Route(query.schema, dropped - query.computed, count if kept else None)
    return Queried(query, route)


def left_out(source: Source, sink: Sink, *, carried: bool) -> frozenset[str]:
    """Return the metadata columns of the source's rows that are not written.

    Args:
        source: The source.
        sink: The sink.
        carried: Whether both are streams of messages: then the place in the source is
            not carried, nor what the type of the sink does not store. Otherwise those
            are left out for which the topic has no column.
    """
    if carried:
        stored = sink.framework_columns - {"_topic", "_partition"}
        return source.added_columns - stored
    return sink.lacks(source.metadata_columns)
