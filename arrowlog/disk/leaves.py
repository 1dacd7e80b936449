"""Columns of a Parquet file, and the bytes that Arrow allocates to read them.

Writers cut batches by the rule by which readers refuse row groups: what was committed
can be read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from streamfactory.conversion.arrays import is_list
from streamfactory.spi.computing import pc

if TYPE_CHECKING:
    from collections.abc import Iterator


class Leaf(NamedTuple):
    """One column of the file: a column of the topic, or a part of a nested one."""

    width: int
    """Bytes of a value in memory; of text, those of its offset."""
    is_text: bool
    column: str | None
    """Name of the topic's column if it is not nested."""
    repeated: bool
    """Whether it is within a list or map: a row may have any number of values."""
    padded: int
    """Values in memory for one null of the file: product of the fixed list sizes."""

    def expanded(self, rows: int, values: int) -> int:
        """Upper bound of the bytes in memory, without the bytes of text.

        Args:
            rows: Rows of the row group.
            values: Values of the column by the footer, including nulls and, within a
                list, one for each list that is null or empty.
        """
        if self.repeated:
            return values * self.padded * self.width
        return max(values, rows * self.padded) * self.width


def leaves_of(schema: pa.Schema) -> list[Leaf]:
    """Return the columns of the file in which rows of a schema are written."""
    found: list[Leaf] = []
    for field in schema:
        name = None if children(storage(field.type)) else field.name
        found += _leaves(field.type, name)
    return found


def _leaves(
    kind: pa.DataType, name: str | None, padded: int = 1, *, repeated: bool = False
) -> Iterator[Leaf]:
    kind = storage(kind)
    if pa.types.is_fixed_size_list(kind):
        padded *= kind.list_size
    elif pa.types.is_map(kind) or is_list(kind):
        repeated = True
    inner = children(kind)
    if not inner:
        yield Leaf(_width(kind), _is_text(kind), name, repeated, padded)
    for child in inner:
        yield from _leaves(child, None, padded, repeated=repeated)


def storage(kind: pa.DataType) -> pa.DataType:
    """Return the type in which values of a type are stored."""
    while isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return kind


def children(kind: pa.DataType) -> list[pa.DataType]:
    """Return the types within a type that is no extension type."""
    return [kind.field(i).type for i in range(kind.num_fields)]


def _width(kind: pa.DataType) -> int:
    if _is_text(kind):
        return 4
    if pa.types.is_null(kind):
        return 1
    return max(1, int(kind.bit_width) // 8)


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
        or _is_view(kind)
    )


def _is_view(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string_view(kind) or pa.types.is_binary_view(kind))


# --- the same of rows that are not written yet -----------------------------------


_LEVELS = 4
"""Maximum bytes of the levels of a value in a page."""
_LENGTHS = 8
"""Bytes of a text in a page besides itself: levels, and its length or index."""


def expansion(rows: pa.RecordBatch) -> int:
    """Return at least the bytes that a reader counts for a batch, if it is written."""
    total, longest = 0, 0
    counts = (count for column in rows.columns for count in values_of(column))
    for leaf, (values, text) in zip(leaves_of(rows.schema), counts, strict=True):
        total += leaf.expanded(rows.num_rows, values)
        if leaf.is_text:
            # Both a dictionary and the values that it stands for are counted.
            total += values * _LENGTHS + 2 * text
        longest = max(longest, values * (leaf.width + _LEVELS) + text)
    return max(total, longest)


def values_of(column: pa.Array, missing: int = 0) -> Iterator[tuple[int, int]]:
    """Return the number of values and the bytes of text of each column of the file.

    Args:
        column: A column, or what is within its lists and structs.
        missing: Number of values of the file that ``column`` does not have: one for
            each null or empty list around it.
    """
    while isinstance(column, pa.ExtensionArray):
        column = column.storage
    kind = column.type
    if pa.types.is_map(kind):
        column = _pairs(column)
        kind = column.type
    if pa.types.is_struct(kind):
        for child in column.flatten():
            yield from values_of(child, missing)
    elif pa.types.is_fixed_size_list(kind):
        yield from values_of(column.flatten(), missing + column.null_count)
    elif is_list(kind):
        filled = pc.sum(pc.greater(pc.list_value_length(column), 0)).as_py() or 0
        yield from values_of(column.flatten(), missing + len(column) - filled)
    else:
        yield missing + len(column), _text_bytes(column)


def _pairs(column: pa.MapArray) -> pa.ListArray:
    """A map as a list; a cast refuses required fields that are null below a null."""
    fields = [column.type.key_field, column.type.item_field]
    pairs = pa.StructArray.from_arrays([column.keys, column.items], fields=fields)
    return pa.Array.from_buffers(
        pa.list_(pairs.type),
        len(column),
        column.buffers()[:2],
        offset=column.offset,
        children=[pairs],
    )


def _text_bytes(column: pa.Array) -> int:
    if _is_view(column.type):
        views = np.frombuffer(column.buffers()[1], np.int32).reshape(-1, 4)
        lengths = views[column.offset : column.offset + len(column), 0]
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        return int(lengths[valid].sum(dtype=np.int64))
    if _is_text(column.type):
        return int(pc.sum(pc.binary_length(column)).as_py() or 0)
    return 0
