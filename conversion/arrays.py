"""Accessors of array layouts that respect slices, where pyarrow has none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from streamfactory.spi.computing import pc

if TYPE_CHECKING:
    from collections.abc import Iterator


def is_list(kind: pa.DataType) -> bool:
    """Whether values are lists of any length, views included."""
    types = pa.types
    return bool(
        types.is_list(kind)
        or types.is_large_list(kind)
        or types.is_list_view(kind)
        or types.is_large_list_view(kind)
    )


def is_list_or_fixed(kind: pa.DataType) -> bool:
    """Whether values are lists, of any length or of a fixed one."""
    return is_list(kind) or bool(pa.types.is_fixed_size_list(kind))


def memory_bytes(rows: pa.RecordBatch) -> int:
    """Return the bytes of rows in memory; of a slice, those of its part of the buffers.

    ``nbytes`` computes the parts of all buffers, which takes as long as copying a
    thousand rows. A batch whose buffers are not longer than its message would be is
    no slice, but for a few rows: it may be less than a message's header shorter.
    """
    whole: int = rows.get_total_buffer_size()
    if whole <= pa.ipc.get_record_batch_size(rows):
        return whole
    return int(rows.nbytes)


def unshared(rows: pa.RecordBatch, *, foreign: bool = False) -> pa.RecordBatch:
    """Return rows whose memory is not changed: what others may change is copied.

    Arrow does not know who else uses memory that can be changed, as that of a numpy
    array. Memory that cannot be, as that of a read message, is not copied.

    Args:
        rows: The rows.
        foreign: Whether another library made their memory: it seems not to change.
    """
    if not foreign and not any(_is_mutable(column) for column in rows.columns):
        return rows
    if rows.get_total_buffer_size() <= 2 * pa.ipc.get_record_batch_size(rows):
        return rows.copy_to(pa.default_cpu_memory_manager())
    # A slice: the whole would be copied. A message has its rows only.
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    return pa.ipc.open_stream(sink.getvalue()).read_next_batch()


def _is_mutable(column: pa.Array) -> bool:
    if pa.types.is_dictionary(column.type) and _is_mutable(column.dictionary):
        return True
    return any(buffer is not None and buffer.is_mutable for buffer in column.buffers())


def run_places(column: pa.RunEndEncodedArray) -> np.ndarray:
    """Return the index into ``column.values`` of each value."""
    ends = column.run_ends.to_numpy()
    rows = np.arange(column.offset, column.offset + len(column))
    return np.searchsorted(ends, rows, side="right")


def union_parts(
    column: pa.UnionArray,
) -> Iterator[tuple[int, np.ndarray, pa.Array]]:
    """Yield for each child with values: its number, the rows, and their values.

    pyarrow 25's ``type_codes`` and ``offsets`` ignore that a union is a slice.
    """
    count, at = len(column), column.offset
    if not count:
        return
    _, code_buffer, *offset_buffer = column.buffers()[:3]
    codes = np.frombuffer(code_buffer, np.int8, count, at)
    places = np.arange(count)
    if column.type.mode == "dense":
        places = np.frombuffer(offset_buffer[0], np.int32, count, at * 4)
    for index, code in enumerate(column.type.type_codes):
        rows = np.flatnonzero(codes == code)
        if len(rows):
            yield index, rows, _taken(column.field(index), places[rows])


def _taken(array: pa.Array, places: np.ndarray) -> pa.Array:
    """Return the values at these places, which mostly follow one another."""
    first, last = int(places[0]), int(places[-1])
    if last - first + 1 == len(places) and (np.diff(places) == 1).all():
        return array.slice(first, len(places))
    return array.take(pa.array(places))


def list_parts(column: pa.Array) -> tuple[np.ndarray, pa.Array]:
    """Return lengths and ordered values of a list, list view, fixed-size list or map.

    A null has length 0. The values of a map are structs of a key and an item.
    """
    if pa.types.is_map(column.type):
        column = list_of_entries(column)
    lengths = pc.list_value_length(column).fill_null(0).to_numpy()
    return lengths.astype(np.int64), column.flatten()


def list_of_entries(column: pa.MapArray) -> pa.ListArray:
    """Return a map as lists of structs of a key and an item; copies nothing.

    A cast refuses nulls of items that are not nullable below a null (pyarrow 26).
    """
    entries = column.values
    return pa.Array.from_buffers(
        pa.list_(entries.type),
        len(column),
        column.buffers()[:2],
        offset=column.offset,
        children=[entries],
    )
