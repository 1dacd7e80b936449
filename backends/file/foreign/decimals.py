"""Decimals that are declared 64 bits wide and have values of 16 bytes.

Apache Hop writes them: Arrow Java stores every decimal of up to 38 digits in 16 bytes,
whatever width its type names. Their schema is read as one of 128 bits.
"""

from __future__ import annotations

import struct
from typing import Final

from streamfactory.backends.file.foreign.framing import (
    Malformed,
    field,
    root,
    scalar,
    table,
    vector,
)

_DECIMAL: Final = 7
"""Arrow's number of the type."""


def widened(message: bytes) -> bytes | None:
    """A schema message with each decimal of 64 bits made one of 128.

    Returns:
        None where it has no such decimal.

    Raises:
        Malformed: The schema cannot be read.
    """
    prefix = 8 if message[:4] == b"\xff\xff\xff\xff" else 4
    changed = bytearray(message)
    try:
        found = _widths(message, table(message, root(message, prefix), 2))
    except struct.error as error:
        msg = "its schema cannot be read"
        raise Malformed(msg) from error
    for at in found:
        struct.pack_into("<i", changed, at, 128)
    return bytes(changed) if found else None


def _widths(data: bytes, schema: int) -> list[int]:
    """Where the widths of 64 bits stand."""
    found, seen, open_ = [], set(), [(schema, 1)]
    while open_:
        parent, index = open_.pop()
        at = field(data, parent, index)
        begin, count = vector(data, at) if at else (0, 0)
        for place in range(begin, min(begin + 4 * count, len(data)), 4):
            child = root(data, place)
            if child in seen:
                continue  # hostile schemas share children to make many of few
            seen.add(child)
            open_.append((child, 5))
            if scalar(data, child, 2, "<B") == _DECIMAL:
                kind = table(data, child, 3)
                if scalar(data, kind, 2, "<i") == 64:
                    found.append(field(data, kind, 2))
    return found
