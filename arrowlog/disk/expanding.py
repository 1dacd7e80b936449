"""Checks the decompressed size of a segment's batches before Arrow allocates it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from streamfactory.arrowipc import (
    PREFIX,
    IpcTooLong,
    NotIpc,
    expanded,
    file_blocks,
    read_header,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamfactory.arrowipc import IpcBlock

_TAIL: Final = 10
"""Bytes after the footer: its length and the magic number."""
_ALWAYS: Final = 64 << 20
"""Decompressed bytes of a message that are always allowed."""


class Expansion:
    """Checks the messages of one segment against its committed size.

    Args:
        file: The segment.
        size: Its bytes.
        committed: Returns the segment's bytes in memory; called if a compressed message
            is large.

    Raises:
        ValueError: It has no valid footer, or a dictionary decompresses to more than
            was committed.
    """

    def __init__(self, file: Any, size: int, committed: Callable[[], int]) -> None:
        self._file = file
        self._committed = committed
        length = int.from_bytes(self._at(size - _TAIL, _TAIL)[:4], "little")
        if not 0 < length <= size - _TAIL:
            msg = "it has no footer"
            raise NotIpc(msg)
        footer = self._at(size - _TAIL - length, length)
        dictionaries, self._batches = file_blocks(memoryview(footer))
        for block in dictionaries:
            self._check(block)

    def check(self, number: int) -> None:
        """Check a batch.

        Raises:
            ValueError: It decompresses to more than was committed, or is not a batch.
        """
        if number < len(self._batches):
            self._check(self._batches[number])

    def _check(self, block: IpcBlock) -> None:
        header = read_header(memoryview(self._at(block.offset, block.head))[PREFIX:])
        if header.compressed is None:
            return
        body = self._at(block.offset + block.head, block.body)
        if header.body > len(body):
            msg = "a message ends beyond the file"
            raise NotIpc(msg)
        try:
            expanded(header, body, _ALWAYS)
        except IpcTooLong:
            expanded(header, body, _ALWAYS + 2 * self._committed())

    def _at(self, offset: int, length: int) -> Any:
        self._file.seek(offset)
        return self._file.read_buffer(length)
