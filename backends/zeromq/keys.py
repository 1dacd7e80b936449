"""CURVE keys as text: Z85 (ZeroMQ's RFC 32), or hexadecimal."""

from __future__ import annotations

import re
import struct
from typing import Final

from streamfactory.spi import OptionType

_Z85: Final = re.compile(r"[0-9A-Za-z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}")
_HEXADECIMAL: Final = re.compile("[0-9A-Fa-f]{64}")
"""Z85 may look like a reference, or like a password in a URL."""


def parse_key(text: str) -> bytes:
    """A key, as 32 bytes.

    Raises:
        ValueError: It is neither 40 characters of Z85 nor 64 hexadecimal digits.
    """
    from zmq.utils import z85  # configurations without keys are checked without pyzmq

    text = text.strip()
    if _HEXADECIMAL.fullmatch(text):
        return bytes.fromhex(text)
    if _Z85.fullmatch(text) is None:
        msg = "is not a CURVE key: write 40 characters of Z85, or 64 hexadecimal digits"
        raise ValueError(msg)
    try:
        return z85.decode(text)
    except struct.error:
        msg = "is not a CURVE key: a group of five characters is out of range"
        raise ValueError(msg) from None


def _parse_keys(text: str) -> frozenset[bytes] | None:
    if text.strip().lower() == "any":
        return None
    found = [part for part in re.split(r"[\s,]+", text) if part]
    if not found:
        msg = "has no key"
        raise ValueError(msg)
    return frozenset(map(parse_key, found))


CURVE_KEY: Final = OptionType("CURVE key", parse_key, {"type": "string"})
CURVE_KEYS: Final = OptionType("CURVE keys or any", _parse_keys, {"type": "string"})
