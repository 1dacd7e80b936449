"""Bounds and schema of a table's stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from streamfactory.spi import (
    ConfigError,
    Extent,
    MetadataProvider,
    Partition,
    PartitionInfo,
    TopicNotFound,
)
from streamfactory.tables.columns import stream_schema
from streamfactory.tables.phase import spans

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    import pyarrow as pa

    from streamfactory.spi import StreamConfig
    from streamfactory.tables.phase import Span
    from streamfactory.tables.table import Commit, Table


@final
class TableMetadata(MetadataProvider):
    """Answers for one table: one partition, 0.

    Args:
        config: Names the topic and where reading starts.
        table: The table; opened on first use.
    """

    def __init__(self, config: StreamConfig, table: Callable[[], Table]) -> None:
        self._config = config
        self._table = table

    def fetch_partitions(
        self, topics: Sequence[str], known: Collection[Partition]
    ) -> Sequence[PartitionInfo]:
        topic: str = self._config["topic.name"]
        if list(topics) != [topic]:
            what = f"a table has one topic, {topic!r}"
            raise TopicNotFound(what)
        table = self._table()
        earliest = _earliest(table)
        newest = table.newest().ordinal
        info = PartitionInfo(
            Partition(topic, 0),
            earliest,
            table.layout.changes(newest + 1),
            incarnation=table.identity(),
            begin=self._begin(table, earliest, newest, known),
        )
        return [info]

    def fetch_offsets_at(
        self, timestamp_ms: int, partitions: Collection[Partition]
    ) -> Mapping[Partition, int | None]:
        table = self._table()
        commit = table.at_time(timestamp_ms)
        offset = None
        if commit is not None:
            offset = max(_earliest(table), table.layout.changes(commit.ordinal))
        return dict.fromkeys(partitions, offset)

    def fetch_extents(
        self, partition: Partition, start: int, end: int, most: int | None
    ) -> Sequence[Extent]:
        table = self._table()
        found: list[Extent] = []
        held = 0
        for extent in extents(table, start, end):
            found.append(extent)
            held += extent.end - extent.start
            if most is not None and held >= most:
                break
        return found

    def fetch_commits(self, partition: Partition, start: int, end: int) -> int | None:
        table = self._table()
        layout = table.layout
        first = layout.place(start).commit
        behind = layout.changes(first + 1)
        # Of a snapshot or commit that was read to its end, the position stays behind
        # its last row.
        if start != layout.changes(first) and not any(extents(table, start, behind)):
            first += 1
        return max(0, table.count_commits(first, layout.place(end).commit))

    def fetch_schema(self, topic: str) -> pa.Schema:
        return stream_schema(
            self._table().schema(), added=self._config["change.columns"]
        )

    def _begin(
        self,
        table: Table,
        earliest: int,
        newest: int,
        known: Collection[Partition],
    ) -> int:
        wanted: str | None = self._config.get("start.commit")
        if wanted is None:
            return max(earliest, table.layout.snapshot(newest))
        try:
            ordinal = table.ordinal_of(wanted)
        except ConfigError:
            # A position applies first: the commit may have been expired meanwhile.
            if known:
                return earliest
            raise
        begin = table.layout.changes(ordinal)
        # `earliest` is behind the commits without rows that the table begins with.
        return begin if ordinal < table.oldest().ordinal else max(earliest, begin)


def _earliest(table: Table) -> int:
    """The first offset that is held.

    The commit that creates a table is passed over where it wrote no rows: an empty
    table is an empty stream, whose earliest is its latest.
    """
    oldest, layout = table.oldest(), table.layout
    if not oldest.changes:
        return layout.snapshot(oldest.ordinal)
    first = table.at_or_after(oldest.ordinal) if oldest.created else None
    if first is not None and not table.has_changes(first):
        return layout.changes(first.ordinal + 1)
    return layout.changes(oldest.ordinal)


def extents(table: Table, start: int, end: int) -> Iterator[Extent]:
    """The runs of offsets of a range that can have rows: one for each piece."""
    return (extent for _, _, extent in pieces(table, start, end))


def pieces(table: Table, start: int, end: int) -> Iterator[tuple[Commit, Span, Extent]]:
    """The pieces of a range, with their commits and what of them is in the range.

    Args:
        table: The table.
        start: An offset; inclusive.
        end: Exclusive.
    """
    layout, at = table.layout, start
    while at < end:
        place = layout.place(at)
        commit = table.at_or_after(place.commit)
        if commit is None:
            return
        if commit.ordinal != place.commit:
            at = layout.changes(commit.ordinal)
            place = layout.place(at)
            if at >= end:
                return
        for span in spans(table, commit, place):
            first, last = max(at, span.start), min(end, span.end)
            if first < last:
                yield commit, span, Extent(first, last)
        at = layout.changes(commit.ordinal + 1)
