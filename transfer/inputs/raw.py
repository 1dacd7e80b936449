"""Reads the bytes of files and pipes by complete records, counted and hashed."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import select
import signal
import sys
import time
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, Final, Protocol, final

import pyarrow as pa

from streamfactory.spi import DecodeError, StorageFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_LONGEST: Final = 256 * 1024**2
"""Maximum bytes of one record: an endless one must not exhaust memory."""
COMPRESSED: Final = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}


class Bytes(Protocol):
    """A source of bytes."""

    def read(self, most: int, timeout: float) -> bytes | None:
        """Return bytes; empty at the end, None after the timeout."""

    def position(self) -> int | None:
        """Return the bytes of the file that were read.

        None if equal to `Blocks.consumed`.
        """

    def is_written(self) -> bool:
        """Return whether a program that writes the source has it open, if known."""

    def close(self) -> None:
        """Close; twice is fine."""


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Translate errors of reading a file."""
    try:
        yield
    except OSError as error:
        msg = f"{name} cannot be read: {error.strerror or error}"
        raise StorageFailed(msg) from error


@final
class FileBytes:
    """A file, decompressed by its suffix."""

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

    def is_written(self) -> bool:
        """Whether another program has the file open for writing; False if unknown."""
        return _is_open_for_writing(self._file.fileno())

    def close(self) -> None:
        """Close; twice is fine."""
        if self._from is not self._file:
            self._from.close()
        self._file.close()


@final
class PipeBytes:
    """A descriptor of a pipe; it is not closed."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def read(self, most: int, timeout: float) -> bytes | None:
        """Return bytes; empty at the end, None after the timeout."""
        with reading("standard input"):
            ready, _, _ = select.select([self._descriptor], [], [], max(0.0, timeout))
            return os.read(self._descriptor, most) if ready else None

    def position(self) -> int | None:
        """Return None: a pipe has no length."""
        return None

    def is_written(self) -> bool:
        """Return False: a pipe ends when its writers have closed it."""
        return False

    def close(self) -> None:
        """Do nothing: the caller owns the descriptor."""


def _is_open_for_writing(descriptor: int) -> bool:
    """Whether a file is open for writing: Linux then grants no lease for reading.

    False where there are no leases: on other systems, on network file systems, and for
    files of other users.
    """
    if sys.platform != "linux":
        return False
    try:
        # Of a lease that is broken meanwhile the signal is one that is ignored: SIGIO,
        # the default, ends the process.
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        return error.errno == errno.EAGAIN
    return False


@final
class Blocks:
    """Reads blocks of complete records.

    Args:
        name: Name, for errors.
        source: Source of the bytes; closed with this.
        cut: Returns how many bytes are complete records.
        size: Bytes of one block.
        keeps_rest: Whether bytes at the end that `cut` leaves are never taken;
            otherwise they are a record, unless the source is still written.
    """

    def __init__(
        self,
        name: str,
        source: Bytes,
        cut: Callable[[bytearray], int],
        size: int,
        *,
        keeps_rest: bool = False,
    ) -> None:
        self._name = name
        self._source = source
        self._cut = cut
        self._size = size
        self._keeps_rest = keeps_rest
        self._buffer = bytearray()
        self._hash = hashlib.sha256()
        self._last = b""
        self._ended = False
        self._complete: int | None = None
        """Bytes of the buffer that are complete records; None if not counted yet."""
        self.consumed = 0
        """Bytes taken."""

    @property
    def finished(self) -> bool:
        """Whether all bytes were taken."""
        return self._ended and len(self._buffer) == self.unfinished

    @property
    def unfinished(self) -> int:
        """Bytes at the end that are no complete record, and are not taken."""
        if not self._ended or not self._keeps_rest or not self._buffer:
            return 0
        return len(self._buffer) - self._count()

    @property
    def progress(self) -> int:
        """Bytes of the file that were read."""
        position = self._source.position()
        return self.consumed if position is None else position

    def digest(self) -> str:
        """Of the bytes taken."""
        return self._hash.hexdigest()

    def peek(self, timeout: float) -> bytes:
        """Return the next complete records without consuming them.

        Empty after the timeout.
        """
        deadline = time.monotonic() + timeout
        wanted = self._size
        while True:
            in_time = self._fill(wanted, deadline)
            takes_rest = self._ended and not self._keeps_rest
            whole = len(self._buffer) if takes_rest else self._count()
            if whole or self._ended or not in_time:
                return bytes(memoryview(self._buffer)[:whole])
            if wanted >= _LONGEST:
                msg = f"{self._name}, byte {self.consumed}: a record has no end"
                remedy = f"check its quotes: a record can have at most {_LONGEST} bytes"
                raise DecodeError(msg, remedy=remedy)
            wanted *= 2

    def first(self, length: int) -> bytes:
        """Consume so many bytes of `peek`."""
        data = bytes(memoryview(self._buffer)[:length])
        complete = self._complete
        self._consume(data)
        # What is left of complete records still is.
        self._complete = None if complete is None else complete - len(data)
        return data

    def skip(self, length: int) -> None:
        """Consume so many bytes; fewer at the end."""
        while length:
            if not self._buffer:
                self._read(min(self._size, length), 3600.0)
                if not self._buffer:
                    return
            part = bytes(memoryview(self._buffer)[:length])
            self._consume(part)
            length -= len(part)

    def grew_in_mid_record(self) -> bool:
        """Whether the last consumed record had no newline, and now continues."""
        if not self.consumed or self._last in (b"\n", b"\r"):
            return False
        if not self._buffer and not self._ended:
            self._read(self._size, 0.0)
        return bool(self._buffer) and self._buffer[0] not in b"\n\r"

    def close(self) -> None:
        """Close; twice is fine."""
        self._source.close()

    def _count(self) -> int:
        if self._complete is None:
            self._complete = self._cut(self._buffer)
        return self._complete

    def _consume(self, data: bytes) -> None:
        self._complete = None
        if data:
            self._hash.update(data)
            self._last = data[-1:]
            self.consumed += len(data)
            del self._buffer[: len(data)]

    def _fill(self, wanted: int, deadline: float) -> bool:
        """Buffer so many bytes, or all that there are; False after the deadline."""
        while not self._ended and len(self._buffer) < wanted:
            left = deadline - time.monotonic()
            if not self._read(wanted - len(self._buffer), left):
                return False
        return True

    def _read(self, most: int, timeout: float) -> bool:
        """Buffer bytes, or note the end; False after the timeout."""
        data = self._source.read(most, timeout)
        if data == b"":
            # In this order: a writer that closed the file before wrote everything.
            self._keeps_rest |= self._source.is_written()
            data = self._source.read(most, timeout)
        if data is None:
            return False
        self._ended = not data
        self._buffer += data
        if data:
            self._complete = None
        return True
