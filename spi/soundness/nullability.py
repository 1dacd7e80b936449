"""Checks that columns which are declared not nullable have no nulls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from streamfactory.spi.errors import CorruptData
from streamfactory.spi.soundness.schemas import FLAT, REMEDY, children, parts

if TYPE_CHECKING:
    Mask = np.ndarray[Any, np.dtype[np.bool_]]
    """Selects the elements of an array that belong to a row; None for all."""

_types = pa.types


class Required:
    """Checks columns and children that are declared not nullable."""

    def __init__(self, schema: pa.Schema) -> None:
        self.fields = [
            (number, field)
            for number, field in enumerate(schema)
            if _is_required_within(field)
        ]
        self._flat = {
            number
            for number, field in self.fields
            if _types.is_primitive(field.type) or _is_text(field.type)
        }
        """Columns whose nulls Arrow counts."""

    def run(self, rows: pa.RecordBatch) -> None:
        """Check a batch whose values are valid.

        Raises:
            CorruptData: data_loss; names the dotted path.
        """
        missing = self.find(rows)
        if missing is not None:
            msg = f"column {missing[0]!r} is declared not nullable, but has nulls"
            raise CorruptData(msg, remedy=REMEDY)

    def find(self, rows: pa.RecordBatch) -> tuple[str, int] | None:
        """Return the dotted path of the first that has nulls, and their number.

        None if there are none. The batch may be a slice.
        """
        for number, field in self.fields:
            column = rows.column(number)
            # Mostly there are no nulls, which is known without reading values.
            if number in self._flat:
                if column.null_count:
                    return field.name, column.null_count
            elif _may_miss(column, field):
                missing = _find(column, field, field.name, None)
                if missing is not None:
                    return missing
        return None


def _is_text(kind: pa.DataType) -> bool:
    return bool(_types.is_string(kind) or _types.is_binary(kind))


def _is_required_within(field: pa.Field) -> bool:
    return not field.nullable or any(map(_is_required_within, _inner(field.type)))


def _inner(kind: pa.DataType) -> list[pa.Field]:
    """Return the children whose nulls count, of any nested type."""
    if kind.id in FLAT:
        return []
    if isinstance(kind, pa.BaseExtensionType):
        return _inner(kind.storage_type)
    if _types.is_dictionary(kind):
        return _inner(kind.value_type)
    if _types.is_run_end_encoded(kind):
        return [kind.field(1)]
    return children(kind)


def _may_miss(array: pa.Array, field: pa.Field) -> bool:
    if not field.nullable and _has_nulls(array):
        return True
    pairs = zip(parts(array), _inner(field.type), strict=True)
    return any(_may_miss(*pair) for pair in pairs if _is_required_within(pair[1]))


def _has_nulls(array: pa.Array) -> bool:
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return _has_nulls(array.storage)
    if _types.is_dictionary(kind) and _has_nulls(array.dictionary):
        return True
    if _types.is_run_end_encoded(kind):
        return _has_nulls(_runs(array))
    return bool(array.null_count)


def _runs(array: pa.RunEndEncodedArray) -> pa.Array:
    """Return the values of the runs within an array, which may be a slice."""
    first = array.find_physical_offset()
    return array.values.slice(first, array.find_physical_length())


def _find(
    array: pa.Array, field: pa.Field, path: str, mask: Mask | None
) -> tuple[str, int] | None:
    """Find nulls among the elements of a mask."""
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    kind = array.type
    if not field.nullable:
        count = _missing(array, mask)
        if count:
            return path, count
    pairs = zip(parts(array), _inner(kind), strict=True)
    for number, (part, child) in enumerate(pairs):
        if not _is_required_within(child) or not _may_miss(part, child):
            continue
        where = f"{path}.{child.name}"
        if _types.is_dictionary(kind) or _types.is_map(kind):
            where = path  # the entries of a map are no field of their own
        within: Mask | None
        if _types.is_union(kind):
            within = _mask_of_choice(array, number, len(part), mask)
        else:
            within = _mask_within(array, part, mask)
        missing = _find(part, child, where, within)
        if missing is not None:
            return missing
    return None


def _missing(array: pa.Array, mask: Mask | None) -> int:
    """Return the number of nulls among the elements of a mask."""
    kind = array.type
    if _types.is_run_end_encoded(kind):
        # A mask of rows would be far longer than the runs: a null run is refused, even
        # if all its rows are below null structs.
        return int(_has_nulls(_runs(array)))
    null = _null(array)
    if _types.is_dictionary(kind) and array.dictionary.null_count:
        indices = array.indices.fill_null(0).to_numpy(zero_copy_only=False)
        null = null | _null(array.dictionary)[indices.astype(np.int64)]
    return int(np.count_nonzero(null if mask is None else null & mask))


def _null(array: pa.Array) -> Mask:
    found: Mask = array.is_null().to_numpy(zero_copy_only=False)
    return found


def _mask_within(array: pa.Array, part: pa.Array, mask: Mask | None) -> Mask | None:
    """Return the mask of a child: the elements that belong to selected elements."""
    kind = array.type
    if _types.is_dictionary(kind) or _types.is_run_end_encoded(kind):
        return None
    if array.null_count:
        mask = ~_null(array) if mask is None else mask & ~_null(array)
    if _types.is_struct(kind):
        return mask
    if len(part) > 8 * part.get_total_buffer_size():
        return None  # elements without bytes: a mask would be longer than the batch
    if not len(array):
        return np.zeros(len(part), np.bool_)  # a slice
    begins, ends = _extents(array)
    if mask is not None:
        begins, ends = begins[mask], ends[mask]
    borders = np.zeros(len(part) + 1, np.int32)
    np.add.at(borders, begins, 1)
    np.add.at(borders, ends, -1)
    found: Mask = np.cumsum(borders[:-1]) > 0
    return found


def _mask_of_choice(
    array: pa.UnionArray, number: int, count: int, mask: Mask | None
) -> Mask:
    """Return the mask of a union's child: the elements that are selected."""
    length, at = len(array), array.offset
    found: Mask = np.zeros(count, np.bool_)
    if not length:
        return found
    # Not `type_codes` and `offsets`: pyarrow 26 returns those before a slice.
    _, codes, *offsets = array.buffers()[:3]
    chosen: Mask = (
        np.frombuffer(codes, np.int8, length, at) == (array.type.type_codes[number])
    )
    if mask is not None:
        chosen &= mask
    if array.type.mode == "sparse":
        return chosen
    found[np.frombuffer(offsets[0], np.int32, length, 4 * at)[chosen]] = True
    return found


def _extents(array: pa.Array) -> tuple[Any, Any]:
    """Return the start and the end of each list within the values."""
    kind, count = array.type, len(array)
    if _types.is_fixed_size_list(kind):
        begins = (np.arange(count, dtype=np.int64) + array.offset) * kind.list_size
        return begins, begins + kind.list_size
    wide = _types.is_large_list(kind) or _types.is_large_list_view(kind)
    width = np.dtype(np.int64 if wide else np.int32)
    at = array.offset * width.itemsize
    buffers = array.buffers()
    if _types.is_list_view(kind) or _types.is_large_list_view(kind):
        begins = np.frombuffer(buffers[1], width, count, at).astype(np.int64)
        return begins, begins + np.frombuffer(buffers[2], width, count, at)
    offsets = np.frombuffer(buffers[1], width, count + 1, at)
    return offsets[:-1], offsets[1:]
