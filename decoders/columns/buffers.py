"""Offsets, lengths and data of text and binary columns, and row-wise concatenation."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def offsets_of(column: pa.Array) -> np.ndarray:
    """The start offset of each value, and the end of the last one."""
    if not len(column):
        return np.zeros(1, np.int32)
    found: np.ndarray = np.frombuffer(column.buffers()[1], np.int32)
    return found[column.offset :][: len(column) + 1]


def lengths_of(column: pa.Array) -> np.ndarray:
    """How many bytes each value has."""
    return np.diff(offsets_of(column))


def data_of(column: pa.Array) -> np.ndarray:
    """The concatenated bytes of all values."""
    offsets = offsets_of(column)
    first, last = int(offsets[0]), int(offsets[-1])
    if first == last:
        return np.zeros(0, np.uint8)
    return np.frombuffer(column.buffers()[2], np.uint8, last - first, first)


def has_byte(column: pa.Array, *values: int) -> bool:
    """Whether a column contains one of these bytes."""
    data = data_of(column)
    if not len(data):
        return False
    # Minimum and maximum often rule the bytes out, at a fraction of the cost.
    lowest, highest = int(data.min()), int(data.max())
    return any(
        lowest <= value <= highest and bool((data == value).any()) for value in values
    )


def is_ascii(column: pa.Array) -> bool:
    """Whether all bytes of a column are ASCII."""
    data = data_of(column)
    return not len(data) or int(data.max()) < 0x80


def glued(*parts: pa.Array | str) -> pa.StringArray:
    """Concatenate the parts of each row; null where a part is null."""
    texts = [pa.scalar(p, pa.string()) if isinstance(p, str) else p for p in parts]
    return pc.binary_join_element_wise(*texts, pa.scalar("", pa.string()))
