"""Payloads opened before they are decoded: gzip, zstd, lz4, snappy.

Each message is packed for itself, so each is opened for itself: there is no library
that opens many in one call. What would grow beyond a limit is a bad message, and is
left as soon as it does.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final, final

import pyarrow as pa

from streamfactory.spi import DecodeError
from streamfactory.wiring.decoding.deadletters import Bad

if TYPE_CHECKING:
    from collections.abc import Callable

CODECS: Final = ("none", "gzip", "zstd", "lz4", "snappy", "auto")

_MAGIC: Final = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
}
_SNAPPY_STREAM: Final = b"\xff\x06\x00\x00sNaPpY"
_STEP: Final = 1 << 16
_TOGETHER: Final = 1 << 30
"""Bytes that the payloads of one fetch may have, opened."""


class _TooLongError(Exception):
    """It grows beyond the limit."""


@final
class Payloads:
    """Opens the payloads of one stream. Thread-safe.

    Args:
        codec: Of `CODECS`, but not ``none``. ``auto`` goes by the first bytes, and
            leaves a payload alone that has none of them.
        most: Bytes that one payload may have, opened.
    """

    def __init__(self, codec: str, most: int) -> None:
        self._codec = codec
        self._most = most

    def open(self, values: pa.Array) -> tuple[pa.Array, list[Bad]]:
        """The payloads as they were before they were packed; bad ones are null.

        Raises:
            DecodeError: decode; together they are too long for one batch.
        """
        opened: list[bytes | None] = []
        bad: list[Bad] = []
        total = 0
        for index, value in enumerate(values.to_pylist()):
            try:
                found = None if value is None else self._open(value)
            except _TooLongError:
                what = f"it has more than payload.max.bytes, {self._most}, unpacked"
                bad.append(Bad(index, None, "payload_too_long", what))
                found = None
            except (zlib.error, pa.ArrowException, OSError, EOFError, ValueError):
                # What a library says of it may hold parts of it.
                what = f"it cannot be unpacked as {self._codec}"
                bad.append(Bad(index, None, "compression", what))
                found = None
            total += 0 if found is None else len(found)
            if total > _TOGETHER:
                msg = f"the payloads of one fetch have more than {_TOGETHER} bytes, "
                msg += "unpacked"
                raise DecodeError(msg, remedy="set batch.bytes or batch.rows lower")
            opened.append(found)
        return pa.array(opened, pa.binary()), bad

    def _open(self, value: bytes) -> bytes:
        codec = self._codec
        if codec == "auto":
            if value.startswith(_SNAPPY_STREAM):
                msg = "framed snappy is not read"
                raise ValueError(msg)
            codec = next((c for m, c in _MAGIC.items() if value.startswith(m)), "")
            if not codec:
                return value
        return _OPENERS[codec](value, self._most)


def _gunzip(value: bytes, most: int) -> bytes:
    parts: list[bytes] = []
    left, rest = most, value
    while rest or not parts:  # several members are one payload
        member = zlib.decompressobj(31)
        part = member.decompress(rest, left + 1)
        left -= len(part)
        if left < 0:
            raise _TooLongError
        if not member.eof:
            msg = "it is cut short"
            raise EOFError(msg)
        parts.append(part)
        rest = member.unused_data
    return b"".join(parts)


def _stream(codec: str) -> Callable[[bytes, int], bytes]:
    def opened(value: bytes, most: int) -> bytes:
        if not value:
            msg = "nothing is no packed payload"
            raise EOFError(msg)
        parts: list[bytes] = []
        left = most
        with pa.CompressedInputStream(pa.BufferReader(value), codec) as stream:
            # Arrow makes room for all that is asked for: not for the limit at once.
            while part := stream.read(min(left + 1, _STEP)):
                left -= len(part)
                if left < 0:
                    raise _TooLongError
                parts.append(part)
        return b"".join(parts)

    return opened


def _unsnap(value: bytes, most: int) -> bytes:
    """A raw block, which begins with the length that it will have."""
    size = shift = 0
    for byte in value[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    else:
        msg = "the length does not end"
        raise ValueError(msg)
    if size > most:
        raise _TooLongError
    found: bytes = pa.decompress(
        value, decompressed_size=size, codec="snappy", asbytes=True
    )
    return found


_OPENERS: Final = {
    "gzip": _gunzip,
    "zstd": _stream("zstd"),
    "lz4": _stream("lz4"),
    "snappy": _unsnap,
}
