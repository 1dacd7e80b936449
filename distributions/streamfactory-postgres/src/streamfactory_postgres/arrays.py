"""Columns in the binary format of PostgreSQL's arrays, to Arrow.

The server makes an array of the values of a column that are not null, and another of
the numbers of rows where they are. Elements of one width are then read by NumPy.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from streamfactory_postgres.binary import DAYS, MICROS

_HEAD: Final = 20
"""Bytes before the elements of an array of one dimension."""
_LAYOUTS: Final = {
    pa.bool_(): "?",
    pa.int16(): ">i2",
    pa.int32(): ">i4",
    pa.int64(): ">i8",
    pa.float32(): ">f4",
    pa.float64(): ">f8",
    pa.date32(): ">i4",
    pa.timestamp("us"): ">i8",
    pa.timestamp("us", "UTC"): ">i8",
    pa.time64("us"): ">i8",
}
FIXED: Final = frozenset(_LAYOUTS)
"""Types whose values have one width."""
_MOVED: Final = {
    pa.date32(): DAYS,
    pa.timestamp("us"): MICROS,
    pa.timestamp("us", "UTC"): MICROS,
}
"""From 1970 to 2000, where PostgreSQL counts from."""
_FIRST: Final = {kind: -(730_119 * moved // DAYS) for kind, moved in _MOVED.items()}
"""The first of January of the year 1."""
_MIDNIGHT: Final = 86_400_000_000


def width_of(kind: pa.DataType) -> int:
    """Bytes of a value of a type of `FIXED`."""
    return np.dtype(_LAYOUTS[kind]).itemsize


def elements(data: bytes | None, kind: pa.DataType) -> np.ndarray[Any, np.dtype[Any]]:
    """The elements of an array without nulls; None is one without elements.

    Args:
        data: As the server sends it.
        kind: Of an element; one of `FIXED`.
    """
    layout = np.dtype(_LAYOUTS[kind])
    if data is None:
        return np.empty(0, layout.newbyteorder("="))
    found = np.frombuffer(data, [("length", ">i4"), ("value", layout)], offset=_HEAD)
    return found["value"].astype(layout.newbyteorder("="))


def fixed(
    data: bytes | None, nulls: bytes | None, column: pa.Field, rows: int
) -> pa.Array:
    """A column of values of one width.

    Args:
        data: The array of its values that are not null.
        nulls: The array of the numbers of rows, from 1, where they are null.
        column: Of the column.
        rows: How many the column has.

    Raises:
        pa.ArrowInvalid: A value has no Arrow value, such as the date ``infinity``.
    """
    kind = column.type
    values = elements(data, kind)
    _check(values, column)
    if kind in _MOVED:
        values = values + values.dtype.type(_MOVED[kind])
    mask = None
    if nulls is not None:
        mask = np.zeros(rows, bool)
        mask[elements(nulls, pa.int64()) - 1] = True
        given, values = values, np.zeros(rows, values.dtype)
        values[~mask] = given
    array = pa.array(values, mask=mask)
    return array if array.type == kind else array.view(kind)


def text(data: bytes | None, lengths: bytes | None, column: pa.Field) -> pa.Array:
    """A column of texts or bytes.

    Args:
        data: All values, one after the other; None where all are null.
        lengths: The array of their lengths; -1 of a null.
        column: Of the column; a decimal has its text.

    Raises:
        pa.ArrowInvalid: A value is not UTF-8, or no decimal of the column.
    """
    found = elements(lengths, pa.int32())
    ends = np.zeros(len(found) + 1, np.int32)
    np.cumsum(np.maximum(found, 0), out=ends[1:])
    valid = pa.array(found >= 0).buffers()[1]
    buffers = [valid, pa.py_buffer(ends), pa.py_buffer(data or b"")]
    kind = column.type
    stored = pa.binary() if pa.types.is_binary(kind) else pa.string()
    array = pa.Array.from_buffers(stored, len(found), buffers)
    try:
        array.validate(full=True)
        return array if stored == kind else array.cast(kind)
    except pa.ArrowInvalid as error:
        msg = f"column {column.name!r}: {error}"
        raise pa.ArrowInvalid(msg) from error


def _check(values: np.ndarray[Any, np.dtype[Any]], column: pa.Field) -> None:
    """Refuse times that Arrow has not.

    Raises:
        pa.ArrowInvalid: It names one.
    """
    kind = column.type
    is_day_time = kind == pa.time64("us")
    if not len(values) or not (is_day_time or kind in _MOVED):
        return
    least, most = int(values.min()), int(values.max())
    bounds = np.iinfo(values.dtype)
    what = None
    if is_day_time:
        what = "24:00:00" if most >= _MIDNIGHT else None
    elif most > bounds.max - _MOVED[kind]:
        what = "infinity" if most == bounds.max else "a time after the year 290000"
    elif least < _FIRST[kind]:
        what = "-infinity" if least == bounds.min else "a time before Christ"
    if what is not None:
        msg = f"column {column.name!r} has {what}, which is no value of Arrow's {kind}"
        raise pa.ArrowInvalid(msg)
