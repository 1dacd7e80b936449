"""Rows in the binary format of ``COPY``, made column by column with NumPy.

PyArrow writes CSV, which the server has to parse again: that takes ten times as long.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_Array = np.ndarray[Any, np.dtype[Any]]

HEAD: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
END: Final = b"\xff\xff"
_DAYS: Final = 10_957
"""From 1970 to 2000, where PostgreSQL counts from."""
_MICROS: Final = _DAYS * 86_400_000_000
_FIXED: Final[Mapping[str, tuple[str, Callable[[pa.Array], _Array]]]] = {
    "bool": ("u1", lambda array: _numbers(array.cast(pa.uint8()))),
    "int2": (">i2", lambda array: _numbers(array)),
    "int4": (">i4", lambda array: _numbers(array)),
    "int8": (">i8", lambda array: _numbers(array)),
    "float4": (">f4", lambda array: _numbers(array)),
    "float8": (">f8", lambda array: _numbers(array)),
    "date": (">i4", lambda array: _numbers(array.view(pa.int32())) - _DAYS),
    "timestamp": (">i8", lambda array: _numbers(array.view(pa.int64())) - _MICROS),
    "timestamptz": (">i8", lambda array: _numbers(array.view(pa.int64())) - _MICROS),
    "time": (">i8", lambda array: _numbers(array.view(pa.int64()))),
}
"""Types of PostgreSQL of one width: how their bytes lie, and their numbers."""
_LONG: Final = 128
"""Mean bytes of values from which each is copied alone."""
_BYTES: Final = frozenset({"text", "varchar", "bpchar", "bytea"})
KINDS: Final = frozenset(_FIXED) | _BYTES
"""Types that `encode` can write."""


def encode(arrays: list[pa.Array], kinds: list[str]) -> memoryview:
    """Rows as binary ``COPY ... FROM STDIN`` has them between `HEAD` and `END`.

    Args:
        arrays: The columns, of the same length.
        kinds: The type of PostgreSQL of each; one of `KINDS`.
    """
    rows = len(arrays[0])
    valid = [_numbers(array.is_valid().cast(pa.uint8())) == 1 for array in arrays]
    lengths = [
        np.where(is_valid, _lengths(array, kind), 0)
        for is_valid, array, kind in zip(valid, arrays, kinds, strict=True)
    ]
    sizes = sum(lengths, np.full(rows, 2 + 4 * len(arrays), np.int64))
    ends = np.cumsum(sizes)
    out = np.empty(int(ends[-1]), np.uint8)
    places = ends - sizes
    _place(out, places, np.full(rows, len(arrays), ">i2"))
    places = places + 2
    for array, kind, is_valid, length in zip(
        arrays, kinds, valid, lengths, strict=True
    ):
        _place(out, places, np.where(is_valid, length, -1).astype(">i4"))
        places = places + 4
        if kind in _BYTES:
            _scatter(out, places, length, array)
        else:
            layout, numbers = _FIXED[kind]
            filled = pc.if_else(array.is_valid(), array, _zero(array.type))
            values = numbers(filled).astype(layout)
            _place(out, places[is_valid], values[is_valid])
        places = places + length
    return out.data


def _lengths(array: pa.Array, kind: str) -> Any:
    if kind not in _BYTES:
        return np.dtype(_FIXED[kind][0]).itemsize
    return _numbers(pc.fill_null(pc.binary_length(array), 0)).astype(np.int64)


def _zero(kind: pa.DataType) -> pa.Scalar:
    if pa.types.is_boolean(kind) or pa.types.is_floating(kind):
        return pa.scalar(0, pa.int8()).cast(kind)
    whole = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[kind.bit_width]
    return pa.array([0], whole).view(kind)[0]


def _place(out: _Array, places: _Array, values: _Array) -> None:
    """Write values of one width to their places."""
    width = values.dtype.itemsize
    parts = np.ascontiguousarray(values).view(np.uint8).reshape(-1, width)
    for index in range(width):
        out[places + index] = parts[:, index]


def _scatter(out: _Array, places: _Array, lengths: _Array, array: pa.Array) -> None:
    """Write values of different lengths to their places."""
    filled = pc.fill_null(array.cast(pa.binary()), b"")
    _, offsets, data = filled.buffers()
    ends = np.frombuffer(offsets, np.int32)[filled.offset :][: len(filled) + 1]
    if data is None or ends[0] == ends[-1]:
        return
    source = np.frombuffer(data, np.uint8)[int(ends[0]) : int(ends[-1])]
    begins = ends[:-1].astype(np.int64) - ends[0]
    if len(source) > _LONG * len(filled):
        # One index for each byte would take 16 times the bytes of the values.
        for place, begin, length in zip(places, begins, lengths, strict=True):
            out[place : place + length] = source[begin : begin + length]
        return
    out[np.repeat(places - begins, lengths) + np.arange(len(source))] = source


def _numbers(array: pa.Array) -> _Array:
    found: _Array = array.to_numpy(zero_copy_only=False)
    return found
