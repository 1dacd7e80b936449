"""Whether the values of a batch stay within their buffers.

Arrow reads what it is given: an offset that a hostile or damaged file has wrong makes
the process read foreign memory, or crash, long after the batch was handed out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable


def suspects(schema: pa.Schema) -> list[int]:
    """Which columns can be unsound though their buffers are long enough."""
    return [i for i, kind in enumerate(schema.types) if not _is_flat(kind)]


def check(rows: pa.RecordBatch, columns: Iterable[int]) -> None:
    """Raise where values lie outside of their buffers, or text is not UTF-8.

    Args:
        rows: Fresh from a file.
        columns: `suspects` of their schema.

    Raises:
        pyarrow.ArrowInvalid: Names the column.
    """
    rows.validate()
    for index in columns:
        try:
            _check(rows.column(index))
        except pa.ArrowInvalid as error:
            msg = f"column {rows.schema.names[index]!r}: {error}"
            raise pa.ArrowInvalid(msg) from error


def _is_flat(kind: pa.DataType) -> bool:
    types = pa.types
    if types.is_struct(kind):
        return all(_is_flat(field.type) for field in kind)
    return bool(types.is_primitive(kind) or types.is_null(kind))


def _check(array: pa.Array) -> None:
    kind, types = array.type, pa.types
    if _is_flat(kind):
        return
    if types.is_string(kind) or types.is_large_string(kind):
        _check_text(array)
    elif types.is_binary(kind) or types.is_large_binary(kind):
        _offsets(array)
    elif types.is_list(kind) or types.is_large_list(kind):
        _offsets(array)
        _check(array.values)
    elif types.is_struct(kind):
        for index in range(kind.num_fields):
            _check(array.field(index))
    else:
        array.validate(full=True)


def _check_text(array: pa.Array) -> None:
    offsets, data = _offsets(array), array.buffers()[2]
    if not len(offsets) or data is None:
        return
    text = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]
    # Most text is ASCII, which is known ten times faster than UTF-8.
    if len(text) and text.max() >= 0x80:
        array.validate(full=True)


def _offsets(array: pa.Array) -> np.ndarray[Any, np.dtype[Any]]:
    wide = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    wide = wide or pa.types.is_large_list(array.type)
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return np.empty(0, np.int64)
    kind = np.int64 if wide else np.int32
    offsets: np.ndarray[Any, np.dtype[Any]] = np.frombuffer(
        buffer, kind, len(array) + 1, array.offset * kind().nbytes
    )
    if (offsets[1:] < offsets[:-1]).any():
        msg = "an offset is less than the one before it"
        raise pa.ArrowInvalid(msg)
    return offsets
