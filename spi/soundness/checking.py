"""Checks that the values of a batch are within their buffers and valid for their type.

``validate(full=True)`` of Arrow decides what is valid, with additions: run ends, views
of nulls, and nulls that the schema excludes. Arrow 26 did not crash in it on what its
IPC reader made of 360,000 damaged messages of every type; docs/design/soundness.md has
what was tried. It is slow for long text and checks a whole dictionary for every batch:
these are checked with numpy here, and unusual types by Arrow.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from streamfactory.spi.causes import first_line
from streamfactory.spi.errors import CorruptData, SchemaMismatch
from streamfactory.spi.soundness.nullability import Required
from streamfactory.spi.soundness.schemas import FLAT, REMEDY, children, is_same, parts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Check = Callable[[pa.Array], None]
    Offsets = np.ndarray[Any, np.dtype[Any]]

_SMALL: Final = 2048
"""Below this number of rows Arrow's own validation is faster."""
_INLINE: Final = 12
"""Maximum bytes of text that are stored within a view."""
_OTHER_SCHEMA: Final = "the batch has another schema than the validator"
_COLUMN: Final = re.compile(r"(?:In c|C)olumn (\d+): (.*)", re.DOTALL)
"""The beginning of Arrow's message about a column, of a batch and of a table."""
_BYTE: Final = np.dtype(np.int8)
_types = pa.types


class BatchChecks:
    """Checks batches of one schema. See `BatchValidator`."""

    def __init__(self, schema: pa.Schema, *, values: bool) -> None:
        self._schema = schema
        self._values = values
        required = Required(schema)
        self._required = required if values and required.fields else None
        checks = [_check_of(kind) for kind in schema.types]
        self._large = _Plan(checks)
        # Arrow's own validation, but of dictionaries: it would check each value of one
        # for every batch.
        self._small = _Plan(
            [
                check if isinstance(check, _DictionaryCheck) else _check_fully
                for check in checks
            ]
        )
        self._left_out = [
            number
            for number, kind in enumerate(schema.types)
            if values and _is_left_out_within(kind)
        ]
        """Columns that Arrow's validation does not check completely."""

    def run(self, rows: pa.RecordBatch) -> None:
        """Check a batch."""
        if not rows.schema.equals(self._schema):
            raise SchemaMismatch(_OTHER_SCHEMA)
        plan = self._small if rows.num_rows < _SMALL else self._large
        column: int | None = None
        columns: Sequence[int] | None = None
        try:
            if not self._values:
                rows.validate()
            elif not plan.own:
                rows.validate(full=True)
            else:
                rows.validate()
                if plan.of_arrow:
                    columns = plan.of_arrow
                    rows.select(columns).validate(full=True)
                for column, check in plan.own:
                    check(rows.column(column))
            for column in self._left_out:
                _check_left_out(rows.column(column))
        # numpy raises it for a buffer that is too short.
        except (pa.ArrowException, ValueError) as error:
            what = self._explain(error, column, columns)
            raise CorruptData(what, remedy=REMEDY) from error
        if self._required is not None:
            self._required.run(rows)

    def run_all(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Check several batches."""
        is_left_to_arrow = self._values and not (self._small.own or self._left_out)
        if not is_left_to_arrow or any(b.num_rows >= _SMALL for b in batches):
            for rows in batches:
                self.run(rows)
            return
        try:
            table = pa.Table.from_batches(batches, self._schema)
        except pa.ArrowInvalid as error:
            raise SchemaMismatch(_OTHER_SCHEMA) from error
        try:
            table.validate(full=True)
        except pa.ArrowException as error:
            raise CorruptData(self._explain(error), remedy=REMEDY) from error
        if self._required:
            for rows in batches:
                self._required.run(rows)

    def _explain(
        self,
        error: Exception,
        column: int | None = None,
        columns: Sequence[int] | None = None,
    ) -> str:
        """The message of an error, with the name of its column.

        Args:
            error: Of Arrow or numpy.
            column: Number of the column that was checked; None if Arrow names it.
            columns: Numbers of the columns that Arrow counts; None for all.
        """
        reason = first_line(error)
        if column is None and (found := _COLUMN.match(reason)):
            column, reason = int(found[1]), found[2]
            column = column if columns is None else columns[column]
        if column is None:
            return reason
        return f"column {self._schema.field(column).name!r}: {reason}"


class _Plan:
    """How the columns of a batch are checked: by Arrow in one call, or one by one."""

    def __init__(self, checks: Sequence[Check]) -> None:
        by_arrow = (_check_nulls, _check_fully)
        self.own = [
            (number, check)
            for number, check in enumerate(checks)
            if check not in by_arrow
        ]
        """Numbers and checks of columns that Arrow would check slowly."""
        own = dict(self.own)
        self.of_arrow = [n for n in range(len(checks)) if n not in own]


# --- one column -----------------------------------------------------------------------


def _check_of(kind: pa.DataType) -> Check:
    """Return the check of a type's values for a batch of many rows."""
    if _takes_any_bits(kind):
        return _check_nulls
    if _types.is_string(kind) or _types.is_large_string(kind):
        return _text_check(kind)
    if _types.is_binary(kind) or _types.is_large_binary(kind):
        return _bytes_check(kind)
    if _types.is_dictionary(kind) and not children(kind.value_type):
        return _DictionaryCheck()
    if _is_text_within(kind):
        if _types.is_struct(kind):
            return _struct_check(kind)
        if _types.is_list(kind) or _types.is_large_list(kind):
            return _list_check(kind)
    return _check_fully


def _takes_any_bits(kind: pa.DataType) -> bool:
    """Whether every bit pattern is a valid value."""
    if not _types.is_primitive(kind) or _types.is_decimal(kind):
        return False
    # Times of day have a range, dates in milliseconds are whole days.
    return not (_types.is_time(kind) or _types.is_date64(kind))


def _is_text_within(kind: pa.DataType) -> bool:
    """Whether a nested type has text: Arrow checks other types as fast as numpy."""
    if _types.is_string(kind) or _types.is_large_string(kind):
        return True
    if isinstance(kind, pa.BaseExtensionType) or _types.is_dictionary(kind):
        return False
    return any(_is_text_within(child.type) for child in children(kind))


def _check_fully(array: pa.Array) -> None:
    array.validate(full=True)


def _check_nulls(array: pa.Array) -> None:
    """Check that the number of nulls agrees with the bitmap.

    Computations rely on it.
    """
    if not array.null_count:  # without nulls, Arrow has dropped the bitmap
        return
    bitmap = array.buffers()[0]
    if bitmap is None:
        msg = f"{array.null_count} nulls, but no validity bitmap"
        raise pa.ArrowInvalid(msg)
    # Booleans need no check but that of the bitmap.
    pa.Array.from_buffers(
        pa.bool_(), len(array), [bitmap, bitmap], array.null_count, array.offset
    ).validate(full=True)


def _bytes_check(kind: pa.DataType) -> Check:
    width = _offset_width(kind)

    def check(array: pa.Array) -> None:
        _check_nulls(array)
        if len(array):
            _, offsets, data = array.buffers()
            _offsets(array, offsets, width, _size(data))

    return check


def _text_check(kind: pa.DataType) -> Check:
    width = _offset_width(kind)

    def check(array: pa.Array) -> None:
        _check_nulls(array)
        if not len(array):
            return
        _, buffer, data = array.buffers()
        offsets = _offsets(array, buffer, width, _size(data))
        first = offsets[0]
        if length := offsets[-1] - first:
            # Most text is ASCII, which is recognised ten times faster than UTF-8.
            text = np.frombuffer(data, _BYTE, length, first)
            if np.minimum.reduce(text) < 0:
                array.validate(full=True)

    return check


def _list_check(kind: pa.DataType) -> Check:
    inner, width = _check_of(kind.value_type), _offset_width(kind)

    def check(array: pa.Array) -> None:
        _check_nulls(array)
        values = array.values
        if len(array):
            _offsets(array, array.buffers()[1], width, len(values))
        inner(values)

    return check


def _struct_check(kind: pa.DataType) -> Check:
    inner = [_check_of(child.type) for child in children(kind)]

    def check(array: pa.Array) -> None:
        _check_nulls(array)
        for number, one in enumerate(inner):
            one(array.field(number))

    return check


def _is_view(kind: pa.DataType) -> bool:
    return bool(_types.is_string_view(kind) or _types.is_binary_view(kind))


def _is_left_out_within(kind: pa.DataType) -> bool:
    """Whether a type has run ends, or views of text or bytes."""
    if kind.id in FLAT:
        return _is_view(kind)
    if isinstance(kind, pa.BaseExtensionType):
        return _is_left_out_within(kind.storage_type)
    if _types.is_dictionary(kind):
        return _is_left_out_within(kind.value_type)
    if _types.is_run_end_encoded(kind):
        return True
    return any(_is_left_out_within(child.type) for child in children(kind))


def _check_left_out(array: pa.Array) -> None:
    """Check what Arrow's validation does not, at every level of an array."""
    if not _is_left_out_within(array.type):
        return
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    elif _types.is_dictionary(array.type):
        array = array.dictionary
    if _types.is_run_end_encoded(array.type):
        _check_run_ends(array)
    elif _is_view(array.type):
        _check_views_of_nulls(array)
    for part in parts(array):
        _check_left_out(part)


def _check_run_ends(array: pa.RunEndEncodedArray) -> None:
    """Check all run ends: Arrow checks only those of the slice."""
    ends = array.run_ends.to_numpy(zero_copy_only=False)
    if len(ends) and (ends[0] < 1 or (ends[1:] <= ends[:-1]).any()):
        msg = "a run ends before it begins"
        raise pa.ArrowInvalid(msg)


def _check_views_of_nulls(array: pa.Array) -> None:
    """Check views of nulls.

    Undefined in the format, but casts and comparisons read them.
    """
    if not array.null_count:
        return
    _, views, *data = array.buffers()
    numbers = np.frombuffer(views, np.int32, 4 * len(array), 16 * array.offset)
    of_nulls = numbers.reshape(-1, 4)[array.is_null().to_numpy(zero_copy_only=False)]
    lengths = of_nulls[:, 0]
    _, _, index, offset = of_nulls[lengths > _INLINE].T.astype(np.int64)
    sizes = np.array([*map(_size, data), 0])
    ends = offset + lengths[lengths > _INLINE]
    if (
        (lengths < 0).any()
        or (index < 0).any()
        or (index >= len(data)).any()
        or (offset < 0).any()
        or (ends > sizes[index]).any()
    ):
        msg = "the view of a null is outside its buffers"
        raise pa.ArrowInvalid(msg)


def _offset_width(kind: pa.DataType) -> np.dtype[Any]:
    """Return the type of the offsets of text, bytes or lists."""
    wide = (
        _types.is_large_string(kind)
        or _types.is_large_binary(kind)
        or _types.is_large_list(kind)
    )
    return np.dtype(np.int64 if wide else np.int32)


def _offsets(
    array: pa.Array, buffer: pa.Buffer, width: np.dtype[Any], end: int
) -> Offsets:
    """Return the checked offsets of text, bytes or lists: they never decrease.

    Args:
        array: Not empty.
        buffer: That of the offsets.
        width: See `_offset_width`.
        end: The maximum offset.
    """
    offsets: Offsets = np.frombuffer(
        buffer, width, len(array) + 1, array.offset * width.itemsize
    )
    # `reduce` is what `any` calls, after a function of Python.
    if (
        offsets[0] < 0
        or offsets[-1] > end
        or np.logical_or.reduce(offsets[1:] < offsets[:-1])
    ):
        msg = "an offset is outside the values, or less than the previous one"
        raise pa.ArrowInvalid(msg)
    return offsets


def _size(buffer: pa.Buffer | None) -> int:
    return 0 if buffer is None else int(buffer.size)


class _DictionaryCheck:
    """Checks indices; the dictionary only if it is not that of the previous batch."""

    def __init__(self) -> None:
        self._known: pa.Array | None = None
        """Kept, so that no other buffer can get its address."""

    def __call__(self, array: pa.Array) -> None:
        words, known = array.dictionary, self._known
        if len(words) < _SMALL or known is None or not is_same(words, known):
            array.validate(full=True)
            self._known = words
            return
        indices = array.indices
        _check_nulls(indices)
        if not len(indices):
            return
        width = np.dtype(indices.type.to_pandas_dtype())
        numbers = np.frombuffer(
            indices.buffers()[1], width, len(indices), indices.offset * width.itemsize
        )
        # The index of a null is undefined.
        if numbers.min() < 0 or numbers.max() >= len(words):
            array.validate(full=True)
