"""Computes which partitions, offsets and times a filter can match, to plan scans.

A filter that Arrow simplifies to *false* for a known range of offsets matches no row
there. Bounds are found by bisection, so all expressions that Arrow can simplify are
used; others do not limit the range.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from streamfactory.spi import Partition

    Range = tuple[int, int | None]

_FORMAT: Final = ds.IpcFileFormat()
_FILES: Final = LocalFileSystem()
_OFFSETS_END: Final = 2**63 - 1
_LATEST_TIME: Final = 253_402_300_800_000_000
"""The first microsecond of the year 10000."""
_SEPARATELY: Final = 64
"""Maximum partitions whose bounds are searched separately; more share bounds."""


def columns_of(schema: pa.Schema, filter: ds.Expression) -> list[str]:
    """Return the columns of a schema that a filter references.

    Raises:
        pyarrow.ArrowInvalid: The filter refers to a column that is not there, or
            compares types that do not fit.
    """
    _bind(schema, filter)
    return [name for name in schema.names if not _binds_without(name, schema, filter)]


def _bind(schema: pa.Schema, filter: ds.Expression) -> None:
    ds.Scanner.from_batches(iter([]), schema=schema, filter=filter)


def _binds_without(name: str, schema: pa.Schema, filter: ds.Expression) -> bool:
    others = pa.schema([field for field in schema if field.name != name])
    try:
        _bind(others, filter)
    except pa.ArrowInvalid:
        return False
    return True


@final
class Pruning:
    """Bounds that a filter implies.

    Args:
        schema: Of the rows that are filtered, metadata columns included.
        filter: Matches the rows wanted.
        referred: The columns that the filter refers to: `columns_of`.
        places: The metadata columns of the stream: a column of the stream itself can
            have the name of one, and says nothing about partitions.
    """

    def __init__(
        self,
        schema: pa.Schema,
        filter: ds.Expression,
        referred: Sequence[str],
        places: frozenset[str],
    ) -> None:
        self._schema = schema
        self._filter = filter
        self._referred = places.intersection(referred)
        self._places = places

    def ranges(self, ranges: Mapping[Partition, Range]) -> dict[Partition, Range]:
        """The partitions, and of each the offsets, that can have matching rows.

        Args:
            ranges: First offset, inclusive, and end, exclusive, of each partition, none
                of them empty; an end of None is unknown.
        """
        if not self._referred & {"_topic", "_partition", "_offset"}:
            return dict(ranges)
        places = {partition: self._place(partition) for partition in ranges}
        alive = self._alive(
            [
                places[p] & self._between(start, end)
                for p, (start, end) in ranges.items()
            ]
        )
        kept = {p: ranges[p] for p, one in zip(ranges, alive, strict=True) if one}
        if "_offset" not in self._referred:
            return kept
        if len(kept) <= _SEPARATELY:
            return {p: self._narrow(places[p], *kept[p]) for p in kept}
        first, last = self._narrow(ds.scalar(True), 0, None)
        return {
            partition: (max(start, first), _sooner(end, last))
            for partition, (start, end) in kept.items()
        }

    def earliest_time(self) -> int | None:
        """Milliseconds since the epoch before which no row matches; None: no bound.

        Rows without a time count as early ones.
        """
        if "_timestamp" not in self._referred:
            return None
        field = ds.field("_timestamp")

        def dead_before(micros: int) -> bool:
            bound = pa.scalar(micros - 1, pa.timestamp("us", tz="UTC"))
            return not self._alive([(field <= bound) | field.is_null()])[0]

        if not dead_before(1000):
            return None
        return _last(dead_before, 1000, _LATEST_TIME) // 1000

    def _narrow(self, place: ds.Expression, start: int, end: int | None) -> Range:
        last = _OFFSETS_END if end is None else end

        def dead_below(offset: int) -> bool:
            return not self._alive([place & self._between(start, offset)])[0]

        def dead_from(offset: int) -> bool:
            return not self._alive([place & self._between(offset, end)])[0]

        first = _last(dead_below, start, last)
        if not dead_from(last - 1):
            return first, end
        # The first offset from which on nothing matches, counted from the end.
        return first, last - _last(lambda n: dead_from(last - n), 1, last - first)

    def _place(self, partition: Partition) -> ds.Expression:
        place = ds.scalar(True)
        if "_topic" in self._places:
            place &= ds.field("_topic") == partition.topic
        if "_partition" in self._places:
            place &= ds.field("_partition") == pa.scalar(partition.id, pa.int32())
        return place

    def _between(self, start: int, end: int | None) -> ds.Expression:
        if "_offset" not in self._places:
            return ds.scalar(True)
        field = ds.field("_offset")
        lower = field >= pa.scalar(start, pa.int64())
        if end is None:
            return lower
        # Inclusive: Arrow takes 97 <= x < 98 to have room for x > 97, as if 97.5 were
        # one.
        return lower & (field <= pa.scalar(end - 1, pa.int64()))

    def _alive(self, known: Sequence[ds.Expression]) -> list[bool]:
        """Whether the filter can match rows of which so much is known."""
        fragments = [
            _FORMAT.make_fragment(str(number), _FILES, partition_expression=one)
            for number, one in enumerate(known)
        ]
        dataset = ds.FileSystemDataset(fragments, self._schema, _FORMAT, _FILES)
        left = {int(f.path) for f in dataset.get_fragments(filter=self._filter)}
        return [number in left for number in range(len(known))]


def _sooner(end: int | None, other: int | None) -> int | None:
    return min((e for e in (end, other) if e is not None), default=None)


def _last(holds: Callable[[int], bool], low: int, high: int) -> int:
    """Return the last number for which a monotonic predicate holds.

    It holds for the first.
    """
    while low < high:
        middle = (low + high + 1) // 2
        if holds(middle):
            low = middle
        else:
            high = middle - 1
    return low
