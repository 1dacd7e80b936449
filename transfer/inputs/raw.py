"""Bytes of a file or a pipe: whole records at a time, counted and hashed."""

from __future__ import annotations

import hashlib
import os
import select
import time
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, Final, Protocol, final

import pyarrow as pa

from streamfactory.spi import DecodeError, StorageFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_LONGEST: Final = 256 * 1024**2
"""Bytes of one record at the most: what never ends must not fill the memory."""
COMPRESSED: Final = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}


class Bytes(Protocol):
    """Where bytes come from."""

    def read(self, most: int, timeout: float) -> bytes | None:
        """Some bytes; none at the end, None when none came in time."""

    def position(self) -> int | None:
        """Bytes of the file that were read; None where that is `Blocks.consumed`."""

    def close(self) -> None:
        """Close; twice is fine."""


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Tell in our words why a file cannot be read."""
    try:
        yield
    except OSError as error:
        msg = f"{name} cannot be read: {error.strerror or error}"
        raise StorageFailed(msg) from error


@final
class FileBytes:
    """A file, as its name says compressed or not."""

    def __init__(self, path: Path) -> None:
        self._name = str(path)
        codec = COMPRESSED.get(path.suffix.lower())
        with reading(self._name):
            self._file: IO[bytes] = path.open("rb", buffering=0)
            self._from: Any = self._file
            if codec is not None:
                self._from = pa.CompressedInputStream(self._file, codec)

    def read(self, most: int, timeout: float) -> bytes | None:  # noqa: ARG002 - a file never waits
        """Some bytes; none at the end."""
        with reading(self._name):
            data: bytes = self._from.read(most)
        return data

    def position(self) -> int | None:
        """Bytes of the file that were read."""
        return None if self._from is self._file else self._file.tell()

    def close(self) -> None:
        """Close; twice is fine."""
        if self._from is not self._file:
            self._from.close()
        self._file.close()


@final
class PipeBytes:
    """A descriptor that bytes come from in their own time; it is not closed."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def read(self, most: int, timeout: float) -> bytes | None:
        """Some bytes; none at the end, None when none came in time."""
        with reading("standard input"):
            ready, _, _ = select.select([self._descriptor], [], [], max(0.0, timeout))
            return os.read(self._descriptor, most) if ready else None

    def position(self) -> int | None:
        """Nobody knows how long a pipe is."""
        return None

    def close(self) -> None:
        """Leave it open: it is not ours."""


@final
class Blocks:
    """Whole records, some at a time.

    Args:
        name: Named in errors.
        source: Where the bytes come from; closed with this.
        cut: Answers how many of some bytes are whole records.
        size: Bytes wanted at a time.
    """

    def __init__(
        self, name: str, source: Bytes, cut: Callable[[bytearray], int], size: int
    ) -> None:
        self._name = name
        self._source = source
        self._cut = cut
        self._size = size
        self._buffer = bytearray()
        self._hash = hashlib.sha256()
        self._last = b""
        self._ended = False
        self.consumed = 0
        """Bytes taken."""

    @property
    def finished(self) -> bool:
        """Whether all bytes were taken."""
        return self._ended and not self._buffer

    @property
    def progress(self) -> int:
        """Bytes of the file that were read."""
        position = self._source.position()
        return self.consumed if position is None else position

    def digest(self) -> str:
        """Of the bytes taken."""
        return self._hash.hexdigest()

    def peek(self, timeout: float) -> bytes:
        """The next whole records without taking them; empty when none came in time."""
        deadline = time.monotonic() + timeout
        wanted = self._size
        while True:
            in_time = self._fill(wanted, deadline)
            whole = len(self._buffer) if self._ended else self._cut(self._buffer)
            if whole or self._ended or not in_time:
                return bytes(memoryview(self._buffer)[:whole])
            if wanted >= _LONGEST:
                msg = f"{self._name}, byte {self.consumed}: a record has no end"
                remedy = f"records may have {_LONGEST} bytes: look at its quotes"
                raise DecodeError(msg, remedy=remedy)
            wanted *= 2

    def first(self, length: int) -> bytes:
        """Take so much of what `peek` showed."""
        data = bytes(memoryview(self._buffer)[:length])
        self._consume(data)
        return data

    def skip(self, length: int) -> None:
        """Take so many bytes, records or not; fewer are there where it ends before."""
        while length:
            if not self._buffer:
                data = self._source.read(min(self._size, length), 3600.0)
                if not data:
                    self._ended = data == b""
                    return
                self._buffer += data
            part = bytes(memoryview(self._buffer)[:length])
            self._consume(part)
            length -= len(part)

    def grew_in_mid_record(self) -> bool:
        """Whether what was taken ended without a newline, and goes on now."""
        if not self.consumed or self._last in (b"\n", b"\r"):
            return False
        if not self._buffer and not self._ended:
            data = self._source.read(self._size, 0.0)
            self._ended = data == b""
            self._buffer += data or b""
        return bool(self._buffer) and self._buffer[0] not in b"\n\r"

    def close(self) -> None:
        """Close; twice is fine."""
        self._source.close()

    def _consume(self, data: bytes) -> None:
        if data:
            self._hash.update(data)
            self._last = data[-1:]
            self.consumed += len(data)
            del self._buffer[: len(data)]

    def _fill(self, wanted: int, deadline: float) -> bool:
        """Have so many bytes, or all that there are; False when time was up before."""
        while not self._ended and len(self._buffer) < wanted:
            left = deadline - time.monotonic()
            data = self._source.read(wanted - len(self._buffer), left)
            if data is None:
                return False
            self._ended = not data
            self._buffer += data
        return True
