"""What a child is at, in memory that its parent sees when the child is gone."""

from __future__ import annotations

import mmap
import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_HEAD: Final = struct.Struct("<qqqq")
_ROOM: Final = 8 << 20
"""Bytes of an input that are kept."""


class Progress:
    """The item of a plan, the input of that item, and the input itself.

    Args:
        path: The file that is mapped; created where it is missing.
    """

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(_HEAD.pack(0, -1, 0, 0) + bytes(_ROOM))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)

    def begin(self, item: int, number: int, data: bytes) -> None:
        """An input is about to be fed."""
        self._map[_HEAD.size : _HEAD.size + len(data)] = data[:_ROOM]
        self._map[: _HEAD.size] = _HEAD.pack(item, number, len(data), 1)

    def end(self, item: int, number: int) -> None:
        """It was fed; the next one is being made."""
        self._map[: _HEAD.size] = _HEAD.pack(item, number + 1, 0, 0)

    def look(self) -> tuple[int, int, bytes | None]:
        """The item, the number of the input, and the input if it is being fed."""
        item, number, length, fed = _HEAD.unpack(self._map[: _HEAD.size])
        data = self._map[_HEAD.size : _HEAD.size + length] if fed else None
        return item, number, data

    def close(self) -> None:
        self._map.close()
