"""Casts of text columns to the types of a schema; rows that do not fit are isolated.

Whole columns are cast at once. If a cast fails, the column is split until the bad
values are isolated, so that one bad value does not force a loop over all rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Final, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamfactory.conversion.decimals import decimals_of_texts
from streamfactory.decoders.columns.base64 import from_base64
from streamfactory.decoders.columns.buffers import glued, has_byte
from streamfactory.decoders.columns.durations import from_iso
from streamfactory.decoders.columns.uuids import UUID, are_uuids, from_uuids
from streamfactory.spi.ddl import type_text

if TYPE_CHECKING:
    from collections.abc import Callable

_PIECES: Final = 8
_DAY: Final = "1970-01-01T"
_WORD: Final = "(?i)^[+-]?(nan|inf(inity)?)$"
"""The values that are no number of digits. Arrow would accept ``nan(x)``, too."""
_NUMBER: Final = (
    r"^(-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?|(?i:nan|-?inf(inity)?))$"
)
_SHORT: Final = r"^[^1-9]*([0-9]\.?){0,15}([eE].*)?$"
"""At most 15 digits, which every double keeps."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Rows whose values do not fit, and the reason."""

    rows: np.ndarray
    """Their indices."""
    code: str
    what: str
    """The reason. Names the column, never the value."""


@final
@dataclass(frozen=True, slots=True)
class Casting:
    """Casts columns. Immutable.

    Args:
        unit: Unit of timestamps given as integers; None if timestamps are text.
        exact: Whether texts that a number does not keep are faults: leading zeros, a
            plus sign, more digits than a double has.
    """

    unit: str | None = None
    exact: bool = False

    def cast(
        self, column: pa.Array, field: pa.Field, path: str = ""
    ) -> tuple[pa.Array, list[Fault]]:
        """Cast a column; values with a fault become null.

        Args:
            column: Of the wanted type, or its text form: text, 64-bit integers,
                doubles, and lists, structs and maps of them.
            field: The wanted field.
            path: Path of the enclosing struct, with a trailing dot.
        """
        path = f"{path}{field.name}"
        cast, faults = self._nested(column, field.type, path)
        if not field.nullable and cast.null_count:
            rows = np.flatnonzero(cast.is_null())
            what = f"column {path!r} is null but not nullable"
            faults.append(Fault(rows, "null", what))
        return cast, faults

    def fits(self, texts: pa.StringArray, want: pa.DataType) -> bool:
        """Whether all texts are of a type; the bad ones are not searched for."""
        try:
            self._parse(texts, want)
        except pa.ArrowInvalid:
            return False
        return True

    def _nested(
        self, column: pa.Array, want: pa.DataType, path: str
    ) -> tuple[pa.Array, list[Fault]]:
        if column.type == want and not pa.types.is_nested(want):
            return self._leaf(column, want, path)
        if pa.types.is_struct(want):
            return self._struct(column, want, path)
        if pa.types.is_map(want):
            return self._map(column, want, path)
        if pa.types.is_list(want) or pa.types.is_large_list(want):
            return self._list(column, want, path)
        return self._leaf(column, want, path)

    def _struct(
        self, column: pa.Array, want: pa.DataType, path: str
    ) -> tuple[pa.Array, list[Fault]]:
        children, faults = [], []
        for child, field in zip(column.flatten(), want, strict=True):
            cast, found = self.cast(child, field, f"{path}.")
            children.append(cast)
            faults += found
        if not column.null_count:
            return pa.StructArray.from_arrays(children, fields=list(want)), faults
        mask = column.is_null()
        valid = np.asarray(column.is_valid())
        # Children of a null struct are null, even if their fields are not nullable.
        faults = [Fault(f.rows[valid[f.rows]], f.code, f.what) for f in faults]
        cast = pa.StructArray.from_arrays(children, fields=list(want), mask=mask)
        return cast, [fault for fault in faults if len(fault.rows)]

    def _list(
        self, column: pa.Array, want: pa.DataType, path: str
    ) -> tuple[pa.Array, list[Fault]]:
        values, faults = self.cast(column.flatten(), want.value_field, f"{path}.")
        if faults:
            parents = np.asarray(pc.list_parent_indices(column))
            faults = [Fault(np.unique(parents[f.rows]), f.code, f.what) for f in faults]
        mask = column.is_null() if column.null_count else None
        lengths = np.asarray(pc.fill_null(pc.list_value_length(column), 0))
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        large = pa.types.is_large_list(want)
        made = pa.LargeListArray if large else pa.ListArray
        at = pa.array(offsets, pa.int64() if large else pa.int32())
        return made.from_arrays(at, values, type=want, mask=mask), faults

    def _map(
        self, column: pa.Array, want: pa.DataType, path: str
    ) -> tuple[pa.Array, list[Fault]]:
        lists = column.cast(pa.list_(pa.struct(_entry(column.type))))
        kind = pa.list_(pa.struct(_entry(want)))
        made, faults = self._list(lists, kind, path)
        if faults:
            # A key that does not cast becomes null, which Arrow maps do not allow.
            fine = np.ones(len(lists), bool)
            fine[np.concatenate([fault.rows for fault in faults])] = False
            lists = pc.if_else(pa.array(fine), lists, pa.scalar(None, lists.type))
            made, _ = self._list(lists, kind, path)
        keys, items = (made.values.field(index) for index in (0, 1))
        mask = made.is_null() if made.null_count else None
        parts = (made.offsets, keys, items)
        return pa.MapArray.from_arrays(*parts, type=want, mask=mask), faults

    def _leaf(
        self, column: pa.Array, want: pa.DataType, path: str
    ) -> tuple[pa.Array, list[Fault]]:
        characters = _characters(want) if pa.types.is_string(column.type) else None
        cast, bad = isolated(
            column, lambda piece: self._cast(piece, want), want, characters
        )
        if not len(bad):
            return cast, []
        return cast, [
            Fault(
                bad,
                "value",
                f"column {path!r} does not contain a valid {type_text(want)}",
            )
        ]

    def _cast(self, column: pa.Array, want: pa.DataType) -> pa.Array:
        """Cast a column; raises ArrowInvalid if a value does not fit."""
        if column.type == want:
            return column
        if pa.types.is_string(column.type):
            return self._parse(column, want)
        if pa.types.is_timestamp(want) and pa.types.is_integer(column.type):
            return column.cast(pa.timestamp(self.unit, want.tz)).cast(want)
        cast = column.cast(want)
        if pa.types.is_floating(want) and want.bit_width < 64:
            _check(pc.equal(pc.is_finite(cast), pc.is_finite(column)))
        return cast

    def _parse(self, column: pa.Array, want: pa.DataType) -> pa.Array:
        if pa.types.is_large_string(want):
            return column.cast(want)
        if _is_binary(want):
            if want == UUID and are_uuids(column):
                return from_uuids(column)
            return from_base64(column).cast(want)
        if pa.types.is_duration(want):
            return from_iso(column, want)
        if pa.types.is_integer(want):
            _check(not has_byte(column, *b"xX"))  # Arrow would accept 0x1F
        if self.exact and not pa.types.is_temporal(want):
            return self._parse_exact(column, want)
        if self.unit is not None and pa.types.is_timestamp(want):
            whole = pc.match_substring_regex(column, "^-?[0-9]+$")
            if pc.all(whole).as_py():
                return self._cast(column.cast(pa.int64()), want)
            _check(pc.invert(whole))  # mixed columns are split until uniform
        if pa.types.is_floating(want):
            return self._float(column, want)
        if pa.types.is_decimal(want):
            return decimals_of_texts(column, want)
        if pa.types.is_time(want):
            # Arrow casts text to a time of day only through a timestamp.
            return glued(_DAY, column).cast(pa.timestamp(want.unit)).cast(want)
        return column.cast(want)

    def _float(self, column: pa.Array, want: pa.DataType) -> pa.Array:
        wide = column.cast(pa.float64())
        _check_words(column, wide)
        return self._cast(wide, want)

    def _parse_exact(self, column: pa.Array, want: pa.DataType) -> pa.Array:
        """Parse texts that are as the number, or the flag, is printed."""
        if pa.types.is_floating(want):
            found = self._float(column, want)
            # Printing takes a fraction of the time of a regular expression.
            other = pc.not_equal(found.cast(pa.float64()).cast(pa.string()), column)
            if pc.any(other).as_py():
                _check_number(column.filter(other))
            return found
        if pa.types.is_decimal(want):
            found = decimals_of_texts(column, want)
        else:
            found = column.cast(want)
        if pa.types.is_integer(want) or pa.types.is_decimal(want):
            _check(pc.equal(found.cast(pa.string()), column))
        elif pa.types.is_boolean(want):
            _check(pc.greater(pc.binary_length(column), 1))  # Arrow accepts 0 and 1
        return found


def isolated(
    column: pa.Array,
    convert: Callable[[pa.Array], pa.Array],
    want: pa.DataType,
    characters: str | None = None,
) -> tuple[pa.Array, np.ndarray]:
    """Convert a column; values that do not convert become null.

    Args:
        column: Values that convert independently of each other.
        convert: Raises ArrowInvalid if a value does not convert.
        want: The type that ``convert`` returns.
        characters: Character class, in a regular expression, of all valid texts. Texts
            with other characters are not tried.

    Returns:
        The converted column, and the indices of values that did not convert.
    """
    try:
        return convert(column), np.zeros(0, np.int64)
    except pa.ArrowInvalid:
        pass
    invalid = np.zeros(0, np.int64)
    if characters is not None:
        fine = pc.match_substring_regex(column, f"^[{characters}]+$")
        invalid = np.flatnonzero(pc.invert(fine).fill_null(False))
        column = pc.if_else(fine, column, pa.scalar(None, column.type))
    made, bad = _pieces(column, convert, want, 0)
    found = made[0] if len(made) == 1 else pa.concat_arrays(made)
    return found, np.union1d(invalid, np.array(bad, np.int64))


def _pieces(
    column: pa.Array,
    convert: Callable[[pa.Array], pa.Array],
    want: pa.DataType,
    first: int,
) -> tuple[list[pa.Array], list[int]]:
    try:
        return [convert(column)], []
    except pa.ArrowInvalid:
        if len(column) == 1:
            return [pa.nulls(1, want)], [first]
    made, bad = [], []
    step = -(-len(column) // _PIECES)
    for at in range(0, len(column), step):
        found, wrong = _pieces(column.slice(at, step), convert, want, first + at)
        made += found
        bad += wrong
    return made, bad


def _characters(want: pa.DataType) -> str | None:
    """The characters that valid texts of this type consist of, as a class."""
    is_ = pa.types
    if is_.is_integer(want):
        return "0-9+-"
    if is_.is_floating(want) or is_.is_decimal(want):
        return "0-9+.a-zA-Z-"
    return "0-9+:. PDTHMSZ-" if is_.is_temporal(want) else None


def unsupported(schema: pa.Schema, *, nested: bool) -> str | None:
    """Names the first column whose type has no text form; None if all have one.

    Args:
        schema: The declared schema.
        nested: Whether the format has structs and maps.
    """
    for field in schema:
        if not _has_text(field.type, nested=nested):
            kind = type_text(field.type)
            return f"column {field.name!r} has the type {kind}, which has no text"
    return None if len(schema) else "the schema has no column"


def _has_any_text(kind: pa.DataType) -> bool:
    return _has_text(kind, nested=True)


def _has_text(kind: pa.DataType, *, nested: bool) -> bool:
    is_ = pa.types
    if is_.is_struct(kind) or is_.is_map(kind):
        children = [kind.field(index).type for index in range(kind.num_fields)]
        return nested and bool(children) and all(map(_has_any_text, children))
    if is_.is_list(kind) or is_.is_large_list(kind):
        inner = kind.value_type
        flat = not is_.is_nested(inner)
        return (nested or flat) and _has_text(inner, nested=nested)
    return bool(
        is_.is_boolean(kind)
        or is_.is_integer(kind)
        or is_.is_floating(kind)
        or is_.is_decimal128(kind)
        or is_.is_decimal256(kind)
        or is_.is_string(kind)
        or is_.is_large_string(kind)
        or _is_binary(kind)
        or is_.is_date(kind)
        or is_.is_time(kind)
        or is_.is_timestamp(kind)
        or is_.is_duration(kind)
    )


def _is_binary(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def _entry(kind: pa.DataType) -> list[pa.Field]:
    return [kind.key_field, kind.item_field]


def _check_words(texts: pa.Array, numbers: pa.Array) -> None:
    """Refuse numbers that are too large: Arrow makes infinities of them."""
    wordy = pc.invert(pc.is_finite(numbers))
    if pc.any(wordy).as_py():
        _check(pc.match_substring_regex(texts.filter(wordy), _WORD))


def _check_number(texts: pa.Array) -> None:
    """Refuse texts that are no number as it is printed, or have too many digits."""
    _check(pc.match_substring_regex(texts, _NUMBER))
    short = pc.match_substring_regex(texts, _SHORT)
    if pc.all(short).as_py() is False:
        _check_digits(texts.filter(pc.invert(short)))


def _check_digits(texts: pa.Array) -> None:
    """Refuse numbers whose digits a double does not keep."""
    shown = texts.cast(pa.float64()).cast(pa.string())
    for text, other in zip(texts.to_pylist(), shown.to_pylist(), strict=True):
        if text != other:
            _check(Decimal(text) == Decimal(other))


def _check(fine: pa.Array | bool) -> None:
    if fine is False or (fine is not True and pc.all(fine).as_py() is False):
        msg = "a value does not fit the type"
        raise pa.ArrowInvalid(msg)
