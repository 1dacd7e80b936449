"""Counting messages where offsets are sparse: see `MetadataProvider.fetch_extents`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfactory.spi import Extent


def advance(extents: Sequence[Extent], messages: int, end: int) -> int:
    """Return the offset after ``messages`` messages; ``end`` if there are not more."""
    for extent in extents:
        size = extent.end - extent.start
        if messages < size:
            return extent.start + messages
        messages -= size
    return end
