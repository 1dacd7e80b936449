"""Rows in the binary format of ``COPY``, made column by column with NumPy and Arrow.

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
DAYS: Final = 10_957
"""From 1970 to 2000, where PostgreSQL counts from."""
MICROS: Final = DAYS * 86_400_000_000
_FIXED: Final[Mapping[str, tuple[str, Callable[[pa.Array], _Array]]]] = {
    "bool": ("u1", lambda array: _numbers(array.cast(pa.uint8()))),
    "int2": (">i2", lambda array: _numbers(array)),
    "int4": (">i4", lambda array: _numbers(array)),
    "int8": (">i8", lambda array: _numbers(array)),
    "float4": (">f4", lambda array: _numbers(array)),
    "float8": (">f8", lambda array: _numbers(array)),
    "date": (">i4", lambda array: _numbers(array.view(pa.int32())) - DAYS),
    "timestamp": (">i8", lambda array: _numbers(array.view(pa.int64())) - MICROS),
    "timestamptz": (">i8", lambda array: _numbers(array.view(pa.int64())) - MICROS),
    "time": (">i8", lambda array: _numbers(array.view(pa.int64()))),
}
"""Types of PostgreSQL of one width: how their bytes lie, and their numbers."""
_BYTES: Final = frozenset({"text", "varchar", "bpchar", "bytea"})
KINDS: Final = frozenset(_FIXED) | _BYTES
"""Types that `encode` can write."""
_NULL: Final = pa.scalar(b"\xff\xff\xff\xff", pa.binary())
_NOTHING: Final = pa.scalar(b"", pa.binary())


def encode(arrays: list[pa.Array], kinds: list[str]) -> memoryview:
    """Rows as binary ``COPY ... FROM STDIN`` has them between `HEAD` and `END`.

    Args:
        arrays: The columns, of the same length.
        kinds: The type of PostgreSQL of each; one of `KINDS`.
    """
    rows = len(arrays[0])
    parts: list[pa.Array] = []
    # What has one width in all rows, since the last part.
    fixed: list[_Array] = [np.full(rows, len(arrays), ">i2")]
    for array, kind in zip(arrays, kinds, strict=True):
        if kind in _BYTES:
            lengths = pc.fill_null(pc.binary_length(array), -1)
            values = pc.fill_null(array.cast(pa.binary()), b"")
            parts += [_record([*fixed, _numbers(lengths).astype(">i4")]), values]
            fixed = []
            continue
        layout, numbers = _FIXED[kind]
        filled = pc.if_else(array.is_valid(), array, _zero(array.type))
        width = np.full(rows, np.dtype(layout).itemsize, ">i4")
        field = [width, numbers(filled).astype(layout)]
        if array.null_count:
            parts += [_record(fixed)] if fixed else []
            parts.append(pc.if_else(array.is_valid(), _record(field), _NULL))
            fixed = []
        else:
            fixed += field
    if fixed:
        parts.append(_record(fixed))
    joined = pc.binary_join_element_wise(*parts, _NOTHING)
    return memoryview(joined.buffers()[2])


def _record(fields: list[_Array]) -> pa.BinaryArray:
    """The bytes of several numbers, row by row."""
    rows = len(fields[0])
    kinds = np.dtype([(f"f{at}", field.dtype) for at, field in enumerate(fields)])
    made = np.empty(rows, kinds)
    for at, field in enumerate(fields):
        made[f"f{at}"] = field
    ends = np.arange(0, (rows + 1) * kinds.itemsize, kinds.itemsize, dtype=np.int32)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(made)]
    return pa.Array.from_buffers(pa.binary(), rows, buffers)


def _zero(kind: pa.DataType) -> pa.Scalar:
    if pa.types.is_boolean(kind) or pa.types.is_floating(kind):
        return pa.scalar(0, pa.int8()).cast(kind)
    whole = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[kind.bit_width]
    return pa.array([0], whole).view(kind)[0]


def _numbers(array: pa.Array) -> _Array:
    found: _Array = array.to_numpy(zero_copy_only=False)
    return found
