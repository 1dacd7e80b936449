"""Parses server-sent events, as the HTML standard has them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_OVERHEAD: Final = 300
"""Bytes that the objects of an event take, roughly."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event."""

    data: bytes
    kind: str
    id: bytes

    @property
    def size(self) -> int:
        """Bytes that it takes, roughly."""
        return len(self.data) + len(self.kind) + len(self.id) + _OVERHEAD


class EventTooLong(ValueError):
    """An event is longer than allowed."""


class EventParser:
    """Makes events of chunks of bytes.

    Args:
        longest: Bytes of an event, at most.
    """

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._rest = b""
        self._data: list[bytes] = []
        self._size = 0
        self._kind = ""
        self._is_first = True
        self.id = b""
        """Of the last event that had one."""
        self.retry: float | None = None
        """Seconds before a reconnection, as the server asks."""

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """Yield the events that a chunk completes.

        Raises:
            EventTooLong: An event is longer than allowed.
        """
        text = self._rest + chunk
        if self._is_first and text:
            if b"\xef\xbb\xbf".startswith(text[:3]) and len(text) < 3:
                self._rest = text
                return
            self._is_first, text = False, text.removeprefix(b"\xef\xbb\xbf")
        # A carriage return at the end may be half of a line's end.
        held = b"\r" if text.endswith(b"\r") else b""
        whole = text[: len(text) - len(held)]
        lines = whole.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._rest = lines.pop() + held
        for line in lines:
            if event := self._take(line):
                yield event
        if len(self._rest) + self._size > self._longest:
            msg = f"an event is longer than {self._longest} bytes"
            raise EventTooLong(msg)

    def _take(self, line: bytes) -> Event | None:
        if not line:
            data, self._data, self._size = self._data, [], 0
            kind, self._kind = self._kind, ""
            return Event(b"\n".join(data), kind or "message", self.id) if data else None
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
            self._size += len(value) + 1
        elif name == b"event":
            self._kind = value.decode(errors="replace")
        elif name == b"id" and b"\0" not in value:
            self.id = value
        elif name == b"retry" and value.isdigit() and len(value) < 8:
            self.retry = int(value) / 1000
        if self._size > self._longest:
            msg = f"an event is longer than {self._longest} bytes"
            raise EventTooLong(msg)
        return None
