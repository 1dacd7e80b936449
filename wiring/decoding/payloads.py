"""Decompresses payloads before decoding: gzip, zstd, lz4, snappy.

Each message is compressed separately, so each is decompressed separately. A payload
that exceeds the limit is a bad message; its decompression stops at the limit.
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
"""Maximum bytes of the decompressed payloads of one fetch."""


class _TooLongError(Exception):
    """The payload exceeds the limit."""


@final
class Payloads:
    """Decompresses the payloads of one stream. Thread-safe.

    Args:
        codec: One of `CODECS`, but not ``none``. ``auto`` detects the codec by the
            first bytes, and returns other payloads unchanged.
        most: Maximum bytes of one decompressed payload.
    """

    def __init__(self, codec: str, most: int) -> None:
        self._codec = codec
        self._most = most

    def open(self, values: pa.Array) -> tuple[pa.Array, list[Bad]]:
        """Decompress payloads; bad ones are null.

        Raises:
            DecodeError: decode; together they are too large for one batch.
        """
        opened: list[bytes | None] = []
        bad: list[Bad] = []
        total = 0
        for index, value in enumerate(values.to_pylist()):
            try:
                found = None if value is None else self._open(value)
            except _TooLongError:
                what = f"it decompresses to more than payload.max.bytes, {self._most}"
                bad.append(Bad(index, None, "payload_too_long", what))
                found = None
            except (zlib.error, pa.ArrowException, OSError, EOFError, ValueError):
                # The library's message may contain parts of the payload.
                what = f"it cannot be decompressed as {self._codec}"
                bad.append(Bad(index, None, "compression", what))
                found = None
            total += 0 if found is None else len(found)
            if total > _TOGETHER:
                msg = f"the payloads of one fetch have more than {_TOGETHER} bytes, "
                msg += "unpacked"
                raise DecodeError(msg, remedy="reduce batch.bytes or batch.rows")
            opened.append(found)
        return pa.array(opened, pa.binary()), bad

    def _open(self, value: bytes) -> bytes:
        codec = self._codec
        if codec == "auto":
            if value.startswith(_SNAPPY_STREAM):
                msg = "framed snappy is not supported"
                raise ValueError(msg)
            codec = next((c for m, c in _MAGIC.items() if value.startswith(m)), "")
            if not codec:
                return value
        return _OPENERS[codec](value, self._most)


def _gunzip(value: bytes, most: int) -> bytes:
    parts: list[bytes] = []
    left, rest = most, value
    while rest or not parts:  # a payload may have several gzip members
        member = zlib.decompressobj(31)
        part = member.decompress(rest, left + 1)
        left -= len(part)
        if left < 0:
            raise _TooLongError
        if not member.eof:
            msg = "it is truncated"
            raise EOFError(msg)
        parts.append(part)
        rest = member.unused_data
    return b"".join(parts)


def _stream(codec: str) -> Callable[[bytes, int], bytes]:
    def opened(value: bytes, most: int) -> bytes:
        if not value:
            msg = "it is empty"
            raise EOFError(msg)
        parts: list[bytes] = []
        left = most
        with pa.CompressedInputStream(pa.BufferReader(value), codec) as stream:
            # Arrow allocates as many bytes as are requested, so request less than the
            # limit.
            while part := stream.read(min(left + 1, _STEP)):
                left -= len(part)
                if left < 0:
                    raise _TooLongError
                parts.append(part)
        return b"".join(parts)

    return opened


def _unsnap(value: bytes, most: int) -> bytes:
    """Decompress a raw block, which begins with its decompressed length."""
    size = shift = 0
    for byte in value[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    else:
        msg = "its length is malformed"
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
