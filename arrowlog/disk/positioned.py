"""Files that Arrow reads by position, where they are not mapped."""

from __future__ import annotations

import io
from abc import abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


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
