"""Rows of a data file that are chosen by their numbers: those marked as deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from streamfactory.tables.table import Chunk

if TYPE_CHECKING:
    from numpy.typing import NDArray


MOST_MARKED: Final = 1 << 26
"""Rows of one data file that may be marked: 8 bytes each are held to read it."""


def select_rows(chunk: Chunk, numbers: NDArray[np.int64], *, inside: bool) -> Chunk:
    """The rows of a chunk that are in a list of rows, or those that are not.

    Args:
        chunk: Consecutive rows of a piece.
        numbers: Numbers of rows within the piece, rising.
        inside: Whether the rows of the list are wanted, rather than the others.
    """
    count = chunk.rows.num_rows
    low, high = np.searchsorted(numbers, (chunk.first, chunk.first + count))
    mask = np.full(count, not inside)
    mask[numbers[low:high] - chunk.first] = inside
    return _filtered(chunk, pa.array(mask))


def without_rows(chunk: Chunk, kept: pa.BooleanArray) -> Chunk:
    """A chunk without the rows of a piece that were deleted.

    Args:
        chunk: Of consecutive rows.
        kept: Of each row of the piece, whether it is left; rows behind it are.
    """
    count = chunk.rows.num_rows
    mask = kept.slice(chunk.first, count)
    if len(mask) < count:
        mask = pa.concat_arrays([mask, pa.repeat(True, count - len(mask))])
    return _filtered(chunk, mask)


def _filtered(chunk: Chunk, mask: pa.BooleanArray) -> Chunk:
    """The rows of a chunk for which a mask without nulls is true."""
    if mask.true_count == len(mask):
        return chunk
    numbers = pa.arange(chunk.first, chunk.first + len(mask)).filter(mask)
    changes = None if chunk.changes is None else chunk.changes.filter(mask)
    return Chunk(chunk.rows.filter(mask), chunk.first, numbers, changes)
