"""Decimals of big-endian bytes, as Avro and Kafka Connect encode them."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

_LONGEST_DECIMAL: Final = 64


def decimals(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert big-endian two's-complement bytes to decimals.

    Raises:
        pyarrow.ArrowInvalid: A number has too many digits, or no bytes.
    """
    count, width = len(values), kind.bit_width // 8
    binary = values.cast(pa.binary()) if values.type != pa.binary() else values
    binary = binary.view(pa.binary())
    places = np.frombuffer(binary.buffers()[1], np.int32)[binary.offset :][: count + 1]
    data = np.frombuffer(binary.buffers()[2] or b"", np.uint8)
    data = np.append(data, np.uint8(0))
    valid = np.asarray(values.is_valid())
    lengths = np.diff(places)
    if ((lengths == 0) & valid).any() or (lengths > _LONGEST_DECIMAL).any():
        msg = "a decimal has no bytes or too many bytes"
        raise pa.ArrowInvalid(msg)
    ends = places[1:].astype(np.int64)
    sign = np.where(data[places[:-1]] >= 0x80, 0xFF, 0).astype(np.uint8)
    sign[lengths == 0] = 0
    out = np.empty((count, width), np.uint8)
    for at in range(max(width, int(lengths.max(initial=0)))):
        inside = at < lengths
        byte = np.where(inside, data[np.where(inside, ends - 1 - at, 0)], sign)
        if at < width:
            out[:, at] = byte
        elif (byte != sign).any():
            msg = "a decimal has more digits than its type allows"
            raise pa.ArrowInvalid(msg)
    if (((out[:, -1] >= 0x80) != (sign == 0xFF)) & valid).any():
        msg = "a decimal has more digits than its type allows"
        raise pa.ArrowInvalid(msg)
    bitmap = None
    if values.null_count:
        bitmap = pa.array(valid).buffers()[1]
    made = pa.Array.from_buffers(kind, count, [bitmap, pa.py_buffer(out.tobytes())])
    made.validate(full=True)
    return made
