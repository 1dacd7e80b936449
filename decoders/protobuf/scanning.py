"""Vectorized search for messages that are likely bad, before a library parses them.

`suspects` walks the fields of many messages at once; `overflows` searches their bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from streamfactory.decoders.columns.buffers import data_of, offsets_of
from streamfactory.decoders.scanning import Cursor

if TYPE_CHECKING:
    import pyarrow as pa

    from streamfactory.decoders.scanning import Rows

_NUMBER, _EIGHT, _LENGTH, _FOUR = _KINDS = (0, 1, 2, 5)
_KNOWN: Final = np.isin(np.arange(8), _KINDS)
_HALF: Final = np.dtype(np.uint32)
_WORD: Final = np.dtype(np.uint64)
_LONGEST_TAG: Final = 10
"""Maximum bytes of a tag, which is a varint."""
_LEAST: Final = 0xF6
"""First byte of 2**64 - 10, which overflows when its own ten bytes are added."""


def suspects(values: pa.Array, fields: int) -> np.ndarray:
    """The messages that look bad, as far as visible without the types of fields.

    Args:
        values: binary.
        fields: Number of leading fields to check.
    """
    cursor = Cursor(values)
    rows: Rows = cursor.ALL
    for _ in range(fields):
        rows = cursor.more(rows)
        if not (len(values) if isinstance(rows, slice) else len(rows)):
            break
        tags = cursor.number(rows)
        kinds = (tags & np.uint64(7)).astype(np.int64)
        # Groups are rare, and text that is not protobuf often looks like one.
        cursor.refuse(rows, ~_KNOWN[kinds] | (tags < np.uint64(8)))
        for kind in _KINDS:
            chosen = kinds == kind
            if chosen.any():
                _pass(cursor, kind, cursor.those(rows, chosen))
    return np.flatnonzero(cursor.bad)


def _pass(cursor: Cursor, kind: int, rows: Rows) -> None:
    if kind == _NUMBER:
        cursor.pass_number(rows)
    elif kind == _LENGTH:
        # A length above the signed range becomes negative, and is refused.
        cursor.skip(rows, cursor.number(rows).astype(np.int64))
    else:
        cursor.skip(rows, 8 if kind == _EIGHT else 4)


def overflows(values: pa.Array) -> np.ndarray:
    """The messages that may declare a length of at least 2**64 - 10 bytes.

    ptars 0.0.25 adds the size of the length itself without a check: the sum overflows,
    and ptars panics or continues before the field.

    Args:
        values: binary.

    Returns:
        Indices, ascending. Some of these messages are valid: a text can contain these
        bytes.
    """
    data = data_of(values)
    # Eight 0xFF bytes contain four aligned ones: a cheap filter for most data.
    halves = data[: len(data) // _HALF.itemsize * _HALF.itemsize].view(_HALF)
    if len(data) <= _WORD.itemsize or not (halves == np.iinfo(_HALF).max).any():
        return np.zeros(0, np.int64)
    words = np.ndarray(len(data) - _WORD.itemsize, _WORD, data, strides=(1,))
    ones = np.flatnonzero(words == np.iinfo(_WORD).max)
    last = data[ones + _WORD.itemsize]
    first = ones - 1
    huge = (first > 0) & (data[first] >= _LEAST) & (last < 0x80) & (last % 2 == 1)
    starts = first[huge]
    starts = starts[_may_be_length(data, starts)]
    offsets = offsets_of(values)
    found = np.searchsorted(offsets - offsets[0], starts, side="right") - 1
    return np.unique(found)


def _may_be_length(data: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Whether the tag before each number may be that of a field with a length."""
    found = np.zeros(len(starts), bool)
    is_tag = np.ones(len(starts), bool)
    for back in range(1, _LONGEST_TAG + 1):
        at = starts - back
        byte = data[np.maximum(at, 0)]
        # Only the last byte of a tag has its highest bit clear.
        is_tag &= (at >= 0) & ((byte < 0x80) == (back == 1))
        if not is_tag.any():
            break
        found |= is_tag & (byte & 7 == _LENGTH)
    return found
