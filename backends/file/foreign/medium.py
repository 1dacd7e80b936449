"""Access to the bytes of one file that is open for reading, wherever it is."""

from __future__ import annotations

import os
import weakref
from abc import ABC, abstractmethod
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

    from streamfactory.arrowlog.disk.folders import Folders


class Stamp(NamedTuple):
    """Identity, size and time of a file; equal if it was not modified."""

    device: int | str
    """Of an object: its ETag, and no inode."""
    inode: int
    size: int
    modified: int

    @classmethod
    def of(cls, status: os.stat_result) -> Stamp:
        """The stamp of a ``stat``."""
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)

    def same_file(self, other: Stamp) -> bool:
        """Whether both belong to the same file, grown or not."""
        return self[:2] == other[:2]


class Replaced(Exception):
    """An object was removed or overwritten since it was opened. The text is its path.

    An open file keeps its content.
    """


class Medium(ABC):
    """A file that is open for reading.

    Missing files raise ``FileNotFoundError``, other failures ``OSError`` or an error of
    our tree; `translate_errors` translates them.
    """

    path: str
    stamp: Stamp
    """The stamp for which the file was indexed."""
    version: str | None = None
    """Identifies the content, if the storage does; otherwise the content does."""

    @abstractmethod
    def look(self) -> Stamp:
        """The current stamp of the open file."""

    @abstractmethod
    def peek(self, offset: int, length: int) -> bytes:
        """At most ``length`` bytes; fewer at the end of the file."""

    @abstractmethod
    def read(self, offset: int, length: int) -> pa.Buffer:
        """Exactly ``length`` bytes, as an Arrow buffer.

        Raises:
            Malformed: The file was truncated.
        """

    @abstractmethod
    def open(self) -> pa.NativeFile:
        """The file for Arrow's readers; the caller closes it."""

    @abstractmethod
    def map(self) -> None:
        """Serve reads from memory, if the file is complete and small enough.

        A local file is mapped and must not be truncated.
        """

    @abstractmethod
    def close(self) -> None:
        """Close. May be called twice. Buffers that were read stay valid."""


class LocalMedium(Medium):
    """A regular file of this machine. Thread-safe for reads.

    Args:
        path: The file.
        folders: Opens it.

    Raises:
        FormatRefused: permanent; it is no regular file, or reached by a link.
        OSError: As the system raises; `translate_errors` translates it.
    """

    def __init__(self, path: str, folders: Folders) -> None:
        self.path = path
        self._fd, status = folders.read(path)
        self._whole: pa.Buffer | None = None
        # Closes the descriptor if a caller drops the object without close().
        self._closing = weakref.finalize(self, os.close, self._fd)
        self.stamp = Stamp.of(status)

    def look(self) -> Stamp:
        return Stamp.of(os.fstat(self._fd))

    def peek(self, offset: int, length: int) -> bytes:
        parts: list[bytes] = []
        while length > 0 and (part := os.pread(self._fd, length, offset)):
            if len(part) == length and not parts:
                return part
            parts.append(part)
            offset, length = offset + len(part), length - len(part)
        return b"".join(parts)

    def read(self, offset: int, length: int) -> pa.Buffer:
        if self._whole is not None:
            return self._whole.slice(offset, length)
        buffer = pa.allocate_buffer(length)
        view, at = memoryview(buffer), 0
        while at < length:
            count = os.preadv(self._fd, [view[at:]], offset + at)
            if not count:
                msg = (
                    f"the file was truncated below {offset + length} bytes while it "
                    "was read"
                )
                raise Malformed(msg)
            at += count
        return buffer

    def open(self) -> pa.NativeFile:
        if self._whole is not None:
            return pa.BufferReader(self._whole)
        return pa.OSFile(self._descriptor)

    def map(self) -> None:
        if self._whole is not None or not self.stamp.size:
            return
        with pa.memory_map(self._descriptor) as file:
            size = file.size()
            whole = file.read_buffer(size)
        if size == self.stamp.size:
            self._whole = whole

    @property
    def _descriptor(self) -> str:
        """A path of the open file: its own name may be another file's by now."""
        return f"/dev/fd/{self._fd}"

    def close(self) -> None:
        self._fd, self._whole = -1, None
        self._closing()


def stamp_of(path: str, folders: Folders) -> Stamp:
    """The stamp of the file that the path names now.

    Raises:
        TopicNotFound: permanent; there is no such file.
        FormatRefused: permanent; it is no regular file, or reached by a link.
        NotAuthorized, StorageFailed: permanent.
    """
    with translate_errors(path):
        return Stamp.of(folders.status(path))


@contextmanager
def translate_errors(path: str) -> Iterator[None]:
    """Translate errors of file access to `StreamError`, with the path."""
    try:
        yield
    except (Malformed, UnicodeDecodeError, pa.ArrowException, OSError) as error:
        if isinstance(error, StreamError):  # an OSError, some of them
            raise
        raise translated(path, error) from error


def translated(path: str, error: Exception) -> StreamError:
    """The `StreamError` for an error of file access."""
    if isinstance(error, FileNotFoundError):
        return TopicNotFound(f"the file {path!r} does not exist")
    if isinstance(error, PermissionError):
        remedy = "run as a user with read permission, or change the permissions"
        return NotAuthorized(
            f"{path!r} cannot be read: permission denied", remedy=remedy
        )
    if isinstance(error, OSError) and not isinstance(error, pa.ArrowException):
        what = f"{path!r} cannot be read: {error.strerror or error}"
        return StorageFailed(what, remedy="check the disk and its mount")
    reason = " ".join(str(error).split())
    if isinstance(error, pa.ArrowNotImplementedError):
        what = f"the file {path!r} has what is unsupported: {reason}"
        return FormatRefused(what, remedy="write the file in another way, or remove it")
    what = f"the file {path!r} cannot be read: {reason}"
    return CorruptData(what, remedy="rewrite or remove the file")
