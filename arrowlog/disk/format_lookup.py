"""Finds the format of segments by its name, or by the name of a segment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamfactory.arrowlog.disk.ipc import ArrowSegments
from streamfactory.arrowlog.disk.names import PARQUET

if TYPE_CHECKING:
    from streamfactory.arrowlog.disk.formats import SegmentFormat


def format_named(name: str) -> SegmentFormat:
    """Return the format with a name: a value of ``segment.format``."""
    if name == PARQUET:
        # Loads Arrow's Parquet library, which other topics do not need.
        from streamfactory.arrowlog.disk.parquet import ParquetSegments

        return ParquetSegments()
    return ArrowSegments()


def format_of(segment: str) -> SegmentFormat:
    """Return the format of a segment with a valid name."""
    return format_named(segment.rpartition(".")[2])


def fewer_partitions(name: str) -> str | None:
    """Return the remedy where a topic would have too many partitions for a format."""
    if name == PARQUET:
        return "use fewer partitions, or create the topic with segment.format=arrow"
    return None
