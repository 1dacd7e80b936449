"""Partitions of keys by the compiled core, with the results of the Python code."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from streamfactory.compiled.core import core

if TYPE_CHECKING:
    from collections.abc import Sequence


def hashes(kind: pa.DataType) -> bool:
    """Whether the core is installed, and hashes keys of a type as they are."""
    return _form_of(kind) is not None and core() is not None


def _form_of(kind: pa.DataType) -> pa.DataType | None:
    """The type as which the core reads keys of a type; their buffers are alike."""
    if pa.types.is_integer(kind) and kind != pa.uint64():
        return pa.int64()
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return pa.binary()
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return pa.large_binary()
    return None


def partitions_of(keys: pa.Array, count: int, home: int) -> np.ndarray:
    """Return the partition of each key, int32; ``home`` for nulls.

    Args:
        keys: Of a type that the core `hashes`. The key of an integer is its text.
        count: Of partitions.
        home: A partition.
    """
    compiled, form = core(), _form_of(keys.type)
    assert compiled is not None
    keys = keys.cast(form)
    found = compiled.partitions(
        str(form), keys.buffers(), keys.offset, len(keys), count, home
    )
    return np.frombuffer(memoryview(found), np.int32)


def split(partitions: np.ndarray) -> tuple[Sequence[tuple[int, int]], pa.Array] | None:
    """Order rows by partition; None without the core.

    Args:
        partitions: Of each row, at least 0.

    Returns:
        The partitions that have rows, ascending, with their numbers of rows; and the
        indices of the rows by partition, in their order.
    """
    compiled = core()
    if compiled is None:
        return None
    numbers = np.ascontiguousarray(partitions, np.int32)
    sizes, order = compiled.split(pa.py_buffer(numbers))
    indices = [None, pa.py_buffer(order)]
    return sizes, pa.Array.from_buffers(pa.uint32(), len(numbers), indices)
