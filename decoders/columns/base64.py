"""Base64 and hexadecimal text of whole columns (RFC 4648, base64 with padding)."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from streamfactory.decoders.columns.buffers import data_of, offsets_of

_ALPHABET: Final = np.frombuffer(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8
)
_PAD: Final = ord("=")
_SEXTETS: Final = np.full(256, 255, np.uint8)
_SEXTETS[_ALPHABET] = np.arange(64)
_DIGITS: Final = np.full(256, 255, np.uint8)
for _number, _pair in enumerate(
    zip(b"0123456789abcdef", b"0123456789ABCDEF", strict=True)
):
    _DIGITS[list(_pair)] = _number


def from_base64(column: pa.StringArray) -> pa.BinaryArray:
    """The decoded bytes of each text; null of null.

    Raises:
        pyarrow.ArrowInvalid: A text is not base64.
    """
    texts, lengths = _data(column)
    if (lengths % 4).any():
        _refuse()
    ends = np.cumsum(lengths)
    pads = np.zeros(len(column), np.int64)
    some = lengths > 0
    for back in (1, 2):
        pads[some] += texts[ends[some] - back] == _PAD
    if np.count_nonzero(texts == _PAD) != pads.sum():
        _refuse()
    sextets = _SEXTETS[texts]
    sextets[texts == _PAD] = 0
    if (sextets == 255).any():
        _refuse()
    quads = sextets.reshape(-1, 4).astype(np.uint32) @ np.array(
        [1 << 18, 1 << 12, 1 << 6, 1], np.uint32
    )
    found = np.stack([quads >> 16, quads >> 8, quads], axis=1).astype(np.uint8).ravel()
    kept = np.ones(len(found), bool)
    last = ends // 4 * 3
    for back in (1, 2):
        kept[last[pads >= back] - back] = False
    # Unused bits must be zero, else two texts would decode to the same bytes.
    if found[~kept].any():
        _refuse()
    return _column(column, found[kept], lengths // 4 * 3 - pads, pa.binary())


def from_hex(column: pa.StringArray) -> pa.BinaryArray:
    """The bytes of each text of hexadecimal digits; null of null.

    Raises:
        pyarrow.ArrowInvalid: A text is not hexadecimal.
    """
    texts, lengths = _data(column)
    digits = _DIGITS[texts]
    if (lengths % 2).any() or (digits == 255).any():
        msg = "a text is not hexadecimal"
        raise pa.ArrowInvalid(msg)
    found = (digits[::2] << 4 | digits[1::2]).astype(np.uint8)
    return _column(column, found, lengths // 2, pa.binary())


def to_base64(column: pa.BinaryArray) -> pa.StringArray:
    """The base64 text of each value; null of null."""
    data, lengths = _data(column)
    pads = -lengths % 3
    ends = np.cumsum(lengths + pads)
    padded = np.zeros(int(ends[-1]) if len(ends) else 0, np.uint8)
    mask = np.ones(len(padded), bool)
    for back in (1, 2):
        mask[ends[pads >= back] - back] = False
    padded[mask] = data
    threes = padded.reshape(-1, 3).astype(np.uint32)
    quads = threes @ np.array([1 << 16, 1 << 8, 1], np.uint32)
    sextets = np.stack([quads >> 18, quads >> 12, quads >> 6, quads], axis=1) & 63
    texts = _ALPHABET[sextets].ravel()
    last = ends // 3 * 4
    for back in (1, 2):
        texts[last[pads >= back] - back] = _PAD
    return _column(column, texts, (lengths + pads) // 3 * 4, pa.string())


def _data(column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """The concatenated bytes of all values, and the length of each."""
    if column.null_count:
        column = column.fill_null(b"" if pa.types.is_binary(column.type) else "")
    return data_of(column), np.diff(offsets_of(column)).astype(np.int64)


def _column(
    like: pa.Array, data: np.ndarray, lengths: np.ndarray, kind: pa.DataType
) -> pa.Array:
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    valid = None
    if like.null_count:
        bits = np.packbits(np.asarray(like.is_valid()), bitorder="little")
        valid = pa.py_buffer(bits)
    buffers = [valid, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(kind, len(like), buffers)


def _refuse() -> None:
    msg = "a text is not base64"
    raise pa.ArrowInvalid(msg)
