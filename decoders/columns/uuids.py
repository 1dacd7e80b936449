"""UUIDs as text: 32 hexadecimal digits in five groups."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

UUID: Final = pa.binary(16)
"""The type of their values."""
_TEXT: Final = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"
_DIGITS: Final = np.zeros(256, np.uint8)
_DIGITS[np.frombuffer(b"0123456789abcdef", np.uint8)] = np.arange(16)
_DIGITS[np.frombuffer(b"ABCDEF", np.uint8)] = np.arange(10, 16)


def are_uuids(texts: pa.StringArray) -> bool:
    """Whether all texts are UUIDs: no base64 of 16 bytes is."""
    lengths = pc.min_max(pc.binary_length(texts)).as_py()
    if lengths["min"] != 36:
        return False
    return pc.all(pc.match_substring_regex(texts, _TEXT)).as_py() is True


def from_uuids(texts: pa.StringArray) -> pa.FixedSizeBinaryArray:
    """Return the bytes of UUIDs; null of null."""
    digits = "".join(texts.drop_null().to_pylist()).replace("-", "").encode()
    halves = _DIGITS[np.frombuffer(digits, np.uint8)].reshape(-1, 2)
    octets = (halves[:, 0] << 4) | halves[:, 1]
    found = pa.Array.from_buffers(UUID, len(octets) // 16, [None, pa.py_buffer(octets)])
    if not texts.null_count:
        return found
    valid = np.asarray(texts.is_valid())
    return found.take(pa.array(np.cumsum(valid) - 1, mask=~valid))
