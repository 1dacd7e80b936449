"""Files that Arrow reads by position, where they are not mapped."""

from __future__ import annotations

import io
from abc import abstractmethod
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

_TAIL: Final = 64 << 10
"""Bytes of a read at the end of a blob, which has the footer of its format."""


class PositionedReads(io.RawIOBase):
    """A file of a known size, whose subclass reads ranges of it.

    Args:
        size: Bytes of the file when it was opened.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._at = 0

    @abstractmethod
    def read_range(self, start: int, count: int) -> pa.Buffer:
        """Read bytes that the file had when it was opened.

        Raises:
            OSError: It has fewer by now.
        """

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = base + offset
        return self._at

    def read(self, size: int = -1) -> bytes:
        return bytes(memoryview(self.read_buffer(size)))

    def read_buffer(self, size: int = -1) -> pa.Buffer:
        """Read bytes without a copy; fewer only at the end."""
        left = max(0, self._size - self._at)
        count = left if size < 0 else min(size, left)
        found = self.read_range(self._at, count)
        self._at += count
        return found


class Windows(PositionedReads):
    """A blob as a file with read-ahead, because requests have a high latency.

    Args:
        fetch: Returns the bytes from a start to an end; fewer if the blob is shorter.
        name: Name of the blob, for messages.
        size: Its bytes.
        longest: Bytes of the largest read-ahead.
        first: The beginning, if it was read.
        shortest: Bytes of a read that does not continue the one before; each read that
            does is twice as long.
    """

    def __init__(
        self,
        fetch: Callable[[int, int], pa.Buffer],
        name: str,
        size: int,
        longest: int,
        *,
        first: pa.Buffer | None = None,
        shortest: int | None = None,
    ) -> None:
        super().__init__(size)
        self._fetch = fetch
        self._name = name
        self._longest = longest
        self._shortest = longest if shortest is None else shortest
        self._ahead = self._shortest
        self._windows = [] if first is None else [(0, first)]
        """The last two: of the data, and of the footer."""

    def read_range(self, start: int, count: int) -> pa.Buffer:
        for at, window in self._windows:
            if at <= start and start + count <= at + window.size:
                return window.slice(start - at, count)
        begin = min(start, max(0, self._size - _TAIL))
        if any(at <= start <= at + window.size for at, window in self._windows):
            self._ahead = min(self._longest, 2 * self._ahead)
        else:
            self._ahead = self._shortest
        end = min(self._size, max(start + count, begin + self._ahead))
        window = self._fetch(begin, end)
        if window.size != end - begin:
            msg = f"{self._name}: received {window.size} bytes, expected {end - begin}"
            raise OSError(msg)
        self._windows = [*self._windows[-1:], (begin, window)]
        return window.slice(start - begin, count)
