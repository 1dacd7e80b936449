"""Computes the unpacked size of encoded columns, and splits batches by it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from streamfactory.spi.errors import MessageTooLarge
from streamfactory.spi.soundness.schemas import FLAT, children, is_same

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Numbers = np.ndarray[Any, np.dtype[Any]]
    Before = Callable[[Numbers], Numbers]
    """Returns the bytes of the elements before each position of an array. Positions
    count from the array's first element; the result are floats, which do not
    overflow."""

_MOST: Final = 1e15
"""Maximum bytes that one element counts: sums stay finite."""
_REMEDY: Final = (
    "write the rows in smaller messages, or the column without its encoding"
)
_item = pa.int8()
_SHARED: Final = frozenset(
    kind.id
    for kind in (
        pa.null(),
        pa.dictionary(_item, _item),
        pa.run_end_encoded(pa.int32(), _item),
        *(pa.string_view(), pa.binary_view()),
        *(pa.list_view(_item), pa.large_list_view(_item)),
        pa.dense_union([]),
    )
)
"""Ids of the types whose values can share bytes, or have none."""
_types = pa.types


class Unpacking:
    """Measures batches of one schema, and cuts them. See `BatchValidator`."""

    def __init__(self, schema: pa.Schema) -> None:
        self._columns = [
            (number, field.name)
            for number, field in enumerate(schema)
            if _is_encoded(field.type)
        ]
        self._words = {
            number: _Words()
            for number, _ in self._columns
            if _types.is_dictionary(schema.field(number).type)
        }

    @property
    def is_encoded(self) -> bool:
        """Whether the schema has encoded columns."""
        return bool(self._columns)

    def total(self, rows: pa.RecordBatch) -> int:
        """Bytes of the encoded columns."""
        end = np.array([rows.num_rows])
        return int(sum(_before(rows.column(n))(end)[0] for n, _ in self._columns))

    def split(
        self, rows: pa.RecordBatch, limit: int, row_limit: int
    ) -> Iterator[pa.RecordBatch]:
        """Split into slices of at most so many bytes, or of one row."""
        if not rows.num_rows or self._is_surely_less(rows, limit):
            yield rows
            return
        columns = [_before(rows.column(number)) for number, _ in self._columns]

        def before(row: int) -> float:
            at = np.array([row])
            return float(sum(column(at)[0] for column in columns))

        if before(rows.num_rows) <= limit:
            yield rows
            return
        longest = max(limit, row_limit, rows.get_total_buffer_size())
        start, base = 0, 0.0
        while start < rows.num_rows:
            end = _last(before, start, rows.num_rows, base + limit)
            if end == start:
                end = start + 1
                size = before(end) - base
                if size > longest:
                    raise self._too_large(columns, start, size, longest)
            yield rows.slice(start, end - start)
            start, base = end, before(end)

    def _is_surely_less(self, rows: pa.RecordBatch, limit: int) -> bool:
        """Whether the size is below the limit, computed without reading each row."""
        if len(self._words) < len(self._columns):
            return False
        most = 0.0
        for number, words in self._words.items():
            most += rows.num_rows * words.longest(rows.column(number).dictionary)
        return most <= limit

    def _too_large(
        self, columns: list[Before], row: int, size: float, limit: int
    ) -> MessageTooLarge:
        at = np.array([row, row + 1])
        sizes = [float(np.diff(column(at))[0]) for column in columns]
        name = self._columns[sizes.index(max(sizes))][1]
        msg = (
            f"column {name!r}: one row unpacks to {size:.0f} bytes, more than the "
            f"maximum of {limit}"
        )
        return MessageTooLarge(msg, remedy=_REMEDY)


class _Words:
    """Caches the longest value of the last dictionary."""

    def __init__(self) -> None:
        self._known: tuple[pa.Array, float] | None = None

    def longest(self, words: pa.Array) -> float:
        """Return the bytes of the longest value, or more."""
        known = self._known
        if known is not None and is_same(words, known[0]):
            return known[1]
        count = len(words)
        if count > words.get_total_buffer_size():
            return _MOST  # nested values: their length is not computed
        sizes = np.diff(_before(words)(np.arange(count + 1)))
        found = float(sizes.max()) if count else 0.0
        self._known = words, found
        return found


def _last(before: Callable[[int], float], low: int, high: int, most: float) -> int:
    """Return the last position with at most so many bytes before it."""
    while low < high:
        middle = (low + high + 1) // 2
        if before(middle) <= most:
            low = middle
        else:
            high = middle - 1
    return low


def _is_encoded(kind: pa.DataType) -> bool:
    """Whether few bytes can stand for many values."""
    if kind.id in _SHARED:
        return True
    if kind.id in FLAT:
        return False
    if isinstance(kind, pa.BaseExtensionType):
        return _is_encoded(kind.storage_type)
    if _types.is_fixed_size_binary(kind):
        return bool(kind.byte_width == 0)
    inner = children(kind)
    if _types.is_struct(kind) and not inner:
        return True
    return any(_is_encoded(child.type) for child in inner)


# --- bytes before a position ----------------------------------------------------------


def _before(array: pa.Array) -> Before:
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return _before(array.storage)
    if _types.is_dictionary(kind):
        return _before_indices(array)
    if _types.is_run_end_encoded(kind):
        return _before_runs(array)
    if _types.is_string_view(kind) or _types.is_binary_view(kind):
        return _before_views(array)
    if _is_binary(kind):
        offsets = _numbers(array, 1, len(array) + 1)
        return lambda at: (offsets[at] - offsets[0]) + 4.0 * at
    if _types.is_union(kind) and kind.mode == "dense":
        return _before_choices(array)
    if _types.is_struct(kind) or _types.is_union(kind):
        parts = [_before(array.field(i)) for i in range(kind.num_fields)]
        return lambda at: sum((part(at) for part in parts), 1.0 * at)
    if _types.is_fixed_size_list(kind):
        return _before_fixed(array)
    if _types.is_list_view(kind) or _types.is_large_list_view(kind):
        values = _before(array.values)
        begins = _numbers(array, 1, len(array)).astype(np.int64)
        ends = begins + _numbers(array, 2, len(array))
        sizes = np.where(_null(array), 0, values(ends) - values(begins))
        return _summed(sizes + 8.0)
    if children(kind):  # a list, or a map
        values, offsets = _before(array.values), _numbers(array, 1, len(array) + 1)
        first = values(offsets[:1])
        return lambda at: values(offsets[at]) - first + 4.0 * at
    width = max(1.0, 0.0 if _types.is_null(kind) else kind.bit_width / 8)
    return lambda at: width * at


def _before_views(array: pa.Array) -> Before:
    if not len(array):
        return lambda at: 0.0 * at
    # A view is 16 bytes long and begins with the length of its text.
    count, at = 4 * len(array), 16 * array.offset
    lengths = np.frombuffer(array.buffers()[1], np.int32, count, at)[::4]
    return _summed(np.where(_null(array), 0, lengths) + 16.0)


def _before_fixed(array: pa.Array) -> Before:
    size, base = array.type.list_size, array.offset
    values = _before(array.values)
    first = values(np.array([base * size]))
    return lambda at: values((base + at) * size) - first + 1.0 * at


def _before_choices(array: pa.UnionArray) -> Before:
    codes = array.type_codes.to_numpy(zero_copy_only=False)
    offsets = array.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    sizes = np.ones(len(array))
    for number, code in enumerate(array.type.type_codes):
        part, chosen = _before(array.field(number)), codes == code
        at = offsets[chosen]
        sizes[chosen] += part(at + 1) - part(at)
    return _summed(sizes)


def _before_indices(array: pa.DictionaryArray) -> Before:
    if not len(array.dictionary):
        return lambda at: 1.0 * at
    words, indices = _before(array.dictionary), array.indices
    numbers = _numbers(indices, 1, len(indices))
    # The index of a null is undefined.
    numbers = np.where(_null(indices), 0, numbers).astype(np.int64)
    return _summed(words(numbers + 1) - words(numbers))


def _before_runs(array: pa.RunEndEncodedArray) -> Before:
    ends = array.run_ends.to_numpy(zero_copy_only=False).astype(np.int64)
    values = _before(array.values)(np.arange(len(ends) + 1))
    sizes = np.minimum(np.diff(values), _MOST)
    lengths = np.diff(ends, prepend=0)
    sums = np.concatenate([[0.0], np.cumsum(lengths * sizes)])

    def before(at: Numbers) -> Numbers:
        place = np.asarray(at) + array.offset
        run = np.minimum(np.searchsorted(ends, place, "right"), len(ends) - 1)
        found: Numbers = sums[run] + (place - (ends[run] - lengths[run])) * sizes[run]
        return found

    if not len(ends):
        return lambda at: 0.0 * at
    base = before(np.array([0]))
    return lambda at: before(at) - base


def _summed(sizes: Numbers) -> Before:
    sums = np.concatenate([[0.0], np.cumsum(np.minimum(sizes, _MOST))])
    return lambda at: sums[at]


def _null(array: pa.Array) -> Numbers | bool:
    if not array.null_count:
        return False
    found: Numbers = array.is_null().to_numpy(zero_copy_only=False)
    return found


def _is_binary(kind: pa.DataType) -> bool:
    checks = (
        _types.is_string,
        _types.is_binary,
        _types.is_large_string,
        _types.is_large_binary,
    )
    return any(check(kind) for check in checks)


def _numbers(array: pa.Array, buffer: int, count: int) -> Numbers:
    """Return the numbers in one of an array's buffers: offsets, sizes or indices."""
    kind = array.type
    if _types.is_integer(kind):
        width = np.dtype(kind.to_pandas_dtype())
    else:
        wide = (
            _types.is_large_string(kind)
            or _types.is_large_binary(kind)
            or _types.is_large_list(kind)
            or _types.is_large_list_view(kind)
        )
        width = np.dtype(np.int64 if wide else np.int32)
    data = array.buffers()[buffer]
    if not len(array) or data is None:
        return np.zeros(count, width)
    found: Numbers = np.frombuffer(data, width, count, array.offset * width.itemsize)
    return found
