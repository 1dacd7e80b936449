"""Decimals declared as 64 bits wide whose values have 16 bytes.

Apache Hop writes them: Arrow Java stores every decimal of up to 38 digits in 16 bytes,
whatever width the type declares. Such a schema is read with 128-bit decimals.
"""

from __future__ import annotations

import struct
from typing import Final

from streamfactory.arrowipc import target, vector
from streamfactory.backends.file.foreign.framing import Malformed, field, scalar, table

_DECIMAL: Final = 7
"""Arrow's number of the type."""


def widened(message: bytes) -> bytes | None:
    """A schema message with 64-bit decimals declared as 128-bit ones.

    Returns:
        None if the schema has no 64-bit decimal.

    Raises:
        Malformed: The schema cannot be parsed.
    """
    prefix = 8 if message[:4] == b"\xff\xff\xff\xff" else 4
    changed = bytearray(message)
    try:
        found = _widths(message, table(message, target(message, prefix), 2))
    except struct.error as error:
        msg = "the schema cannot be parsed"
        raise Malformed(msg) from error
    for at in found:
        struct.pack_into("<i", changed, at, 128)
    return bytes(changed) if found else None


def _widths(data: bytes, schema: int) -> list[int]:
    """Positions of the widths that are 64."""
    found, seen, open_ = [], set(), [(schema, 1)]
    while open_:
        parent, index = open_.pop()
        begin, count = vector(data, field(data, parent, index))
        for place in range(begin, min(begin + 4 * count, len(data)), 4):
            child = target(data, place)
            if child in seen:
                continue  # a hostile schema may reference one child many times
            seen.add(child)
            open_.append((child, 5))
            if scalar(data, child, 2, "<B") == _DECIMAL:
                kind = table(data, child, 3)
                if scalar(data, kind, 2, "<i") == 64:
                    found.append(field(data, kind, 2))
    return found
