"""Checks of IPC headers: kinds of messages, and their decompressed size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from streamfactory.arrowipc import (
    END,
    PREFIX,
    ROWS,
    ROWS_PER_BYTE,
    SCHEMA,
    IpcTooLong,
    NotIpc,
    expanded,
    header_length,
    read_header,
)

if TYPE_CHECKING:
    from streamfactory.arrowipc import IpcHeader

_CUT_SHORT: Final = "the message is truncated"


class NotArrow(ValueError):
    """The message is malformed or too large. The text quotes no message content."""

    def __init__(self, why: str, code: str = "malformed") -> None:
        super().__init__(why)
        self.code = code


@final
class PayloadScanner:
    """Validates the IPC messages of payloads by their headers. Not thread-safe.

    Args:
        limit: Maximum decompressed bytes of one payload.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._schema = b""
        """The last schema header that was read. Most payloads repeat it."""

    def kinds(self, data: memoryview) -> list[int]:
        """The kinds of the IPC messages, up to the end marker or the end of the data.

        Raises:
            NotArrow: A message is malformed or too large, or data follows the end.
        """
        at = total = 0
        found: list[int] = []
        while at < len(data):
            if found and found[0] != SCHEMA:
                why = f"{len(data) - at} bytes follow the batch"
                raise NotArrow(why)
            if data[at:] == END:
                return found
            try:
                kind, size, at = self._message(data, at, self._limit - total)
            except NotIpc as error:
                raise NotArrow(str(error)) from error
            except IpcTooLong:
                why = f"the decompressed message exceeds {self._limit} bytes"
                raise NotArrow(why, "too_large") from None
            total += size
            found.append(kind)
        if found != [ROWS]:
            why = "the stream is truncated" if found else "the message is empty"
            raise NotArrow(why)
        return found

    def _message(self, data: memoryview, at: int, limit: int) -> tuple[int, int, int]:
        """The kind of a message, its decompressed bytes, and its end offset."""
        start = at + PREFIX
        if start > len(data):
            raise NotArrow(_CUT_SHORT)
        length = header_length(data[at:start])
        body = start + length
        if body > len(data):
            raise NotArrow(_CUT_SHORT)
        if length == 0:
            why = "data follows the end-of-stream marker"
            raise NotArrow(why)
        head = data[start:body]
        if head == self._schema:
            return SCHEMA, 0, body
        header = read_header(head)
        end = body + header.body
        if end > len(data):
            raise NotArrow(_CUT_SHORT)
        if header.kind == SCHEMA:
            self._schema = bytes(head)
            return SCHEMA, 0, body
        return header.kind, _size(header, data[body:end], limit), end


def _size(header: IpcHeader, body: memoryview, limit: int) -> int:
    """Decompressed bytes of a batch."""
    size = expanded(header, body, limit)
    if size > limit:
        raise IpcTooLong(size, limit)
    if header.rows > ROWS_PER_BYTE * size:
        why = "a batch declares more rows than its bytes can hold"
        raise NotArrow(why)
    return size
