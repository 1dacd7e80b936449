"""One open file: its bytes by position, copied or mapped; and what fails there."""

from __future__ import annotations

import os
import stat
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from streamfactory.backends.file.foreign.framing import Malformed
from streamfactory.spi import (
    CorruptData,
    FormatRefused,
    NotAuthorized,
    StorageFailed,
    StreamError,
    TopicNotFound,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


class Stamp(NamedTuple):
    """What a file system says of a file: equal where nobody touched it."""

    device: int
    inode: int
    size: int
    modified: int

    @classmethod
    def of(cls, status: os.stat_result) -> Stamp:
        """The stamp of a ``stat``."""
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)

    def same_file(self, other: Stamp) -> bool:
        """Whether both are of one file, grown or not."""
        return self[:2] == other[:2]


class Medium:
    """A regular file, open for reading. Any thread may read.

    Args:
        path: The file.

    Raises:
        OSError: As the system raises; `translate_errors` makes it ours.
    """

    def __init__(self, path: str) -> None:
        # Opening a pipe would wait for its writer.
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
        self.path = path
        self._fd = os.open(path, flags)
        self._whole: pa.Buffer | None = None
        try:
            status = os.fstat(self._fd)
            if not stat.S_ISREG(status.st_mode):
                msg = f"{path!r} is no regular file"
                raise FormatRefused(msg)
        except BaseException:
            os.close(self._fd)
            raise
        # Whoever forgets a provider leaves no file open.
        self._closing = weakref.finalize(self, os.close, self._fd)
        self.stamp = Stamp.of(status)

    def look(self) -> Stamp:
        """The stamp of this very file, as it is now."""
        return Stamp.of(os.fstat(self._fd))

    def peek(self, offset: int, length: int) -> bytes:
        """So many bytes, fewer at the end of the file."""
        parts: list[bytes] = []
        while length > 0 and (part := os.pread(self._fd, length, offset)):
            if len(part) == length and not parts:
                return part
            parts.append(part)
            offset, length = offset + len(part), length - len(part)
        return b"".join(parts)

    def read(self, offset: int, length: int) -> pa.Buffer:
        """So many bytes, for Arrow to build on.

        Raises:
            Malformed: The file has become shorter.
        """
        if self._whole is not None:
            return self._whole.slice(offset, length)
        buffer = pa.allocate_buffer(length)
        view, at = memoryview(buffer), 0
        while at < length:
            count = os.preadv(self._fd, [view[at:]], offset + at)
            if not count:
                msg = f"was cut to less than {offset + length} bytes while it was read"
                raise Malformed(msg)
            at += count
        return buffer

    def map(self) -> None:
        """Answer `read` from a mapping: no copies, but nobody may cut the file."""
        if self._whole is not None or not self.stamp.size:
            return
        with pa.memory_map(self.path) as file:
            size = file.size()
            whole = file.read_buffer(size)
        # It was opened by its name, which may be another file's by now.
        if size == self.stamp.size and Stamp.of(os.stat(self.path)) == self.look():  # noqa: PTH116 - no Path is made on the way of the data
            self._whole = whole

    def close(self) -> None:
        """Close; twice is fine. What was read stays readable."""
        self._fd, self._whole = -1, None
        self._closing()


def stamp_of(path: str) -> Stamp:
    """The stamp of whatever has that name now.

    Raises:
        TopicNotFound: permanent; nothing has.
        NotAuthorized, StorageFailed: permanent.
    """
    try:
        return Stamp.of(os.stat(path))  # noqa: PTH116 - at each fetch
    except OSError as error:
        raise explained(path, error) from error


@contextmanager
def translate_errors(path: str) -> Iterator[None]:
    """Turn what fails at a file into errors of ours that name it."""
    try:
        yield
    except (Malformed, UnicodeDecodeError, pa.ArrowException, OSError) as error:
        if isinstance(error, StreamError):
            raise
        raise explained(path, error) from error


def explained(path: str, error: Exception) -> StreamError:
    """The error of ours for what failed at a file."""
    if isinstance(error, FileNotFoundError):
        return TopicNotFound(f"there is no file {path!r}")
    if isinstance(error, PermissionError):
        remedy = "run as a user who may read it, or change its permissions"
        return NotAuthorized(f"{path!r} may not be read", remedy=remedy)
    if isinstance(error, OSError) and not isinstance(error, pa.ArrowException):
        what = f"{path!r} cannot be read: {error.strerror or error}"
        return StorageFailed(what, remedy="look at the disk and its mount")
    reason = " ".join(str(error).split())
    what = f"the file {path!r} cannot be read: {reason}"
    return CorruptData(what, remedy="write the file again, or take it away")
