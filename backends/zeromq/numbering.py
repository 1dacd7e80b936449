"""Assignment of offsets from the sequence numbers of senders. No I/O.

With one sender, offsets are its sequence numbers and the incarnation is its stream id.
With several senders, or programs without sequence numbers, the reader assigns offsets,
from 0 at each start.
"""

from __future__ import annotations

import uuid
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from streamfactory.backends.zeromq.protocol import Header

_MOST_SENDERS: Final = 100_000
"""Remembered senders. Each restart of a program is a new sender."""


@dataclass(slots=True)
class Placed:
    """The offsets of the rows of a message."""

    first: int
    next: int
    skip: int
    """Number of leading rows that are duplicates."""
    lost: tuple[int, int, str] | None
    """Missing offsets before it (end exclusive), and the cause."""


@dataclass(slots=True)
class Sender:
    """State of one sender's stream."""

    stream: bytes
    next: int
    """Expected sequence number of the next row."""
    identity: bytes = b""
    """Routing id for replies; only for dealer-router."""
    session: bytes = b""
    """Instance of the sender."""
    spans: list[tuple[int, int]] = field(default_factory=list)
    """Unacknowledged messages: end offset in the partition, with the sender's number.
    Only used if the two differ."""

    @property
    def name(self) -> str:
        """Name in log and error messages."""
        return self.stream.hex()


class OwnNumbers:
    """Offsets are the sequence numbers of one sender at a time."""

    def __init__(self) -> None:
        self.current: Sender | None = None
        self._past: OrderedDict[bytes, None] = OrderedDict()
        self.next = 0

    @property
    def incarnation(self) -> str | None:
        """The stream id of the sender; None before the first message."""
        return None if self.current is None else self.current.name

    def is_new(self, stream: bytes) -> bool:
        """Whether messages of a stream would begin another incarnation."""
        return self.current is None or (
            stream != self.current.stream and stream not in self._past
        )

    def is_past(self, stream: bytes) -> bool:
        """Whether this sender was replaced by another one."""
        return stream in self._past

    def begin(self, stream: bytes, start: int) -> Sender:
        """Begin an incarnation, at a number."""
        if self.current is not None:
            self._past[self.current.stream] = None
            if len(self._past) > _MOST_SENDERS:
                self._past.popitem(last=False)
        self._past.pop(stream, None)
        self.current, self.next = Sender(stream, start), start
        return self.current

    def find(self, stream: bytes) -> Sender | None:
        """The sender of a stream, where it is the current one."""
        current = self.current
        return current if current is not None and current.stream == stream else None

    def place(self, sender: Sender, header: Header) -> Placed | None:
        """The offsets of a message of the sender; None for a duplicate."""
        if header.next <= self.next and header.first < header.next:
            return None
        lost = None
        if header.after > self.next:
            lost = (self.next, header.after, "messages of the sender were not received")
        first = max(header.first, min(self.next, header.next))
        self.next = sender.next = max(self.next, header.next)
        return Placed(first, self.next, max(0, first - header.first), lost)


class MergedNumbers:
    """Offsets are assigned in the order of receipt; missing rows get offsets too."""

    def __init__(self) -> None:
        self.incarnation: str | None = uuid.uuid4().hex
        self.next = 0
        self._senders: OrderedDict[bytes, Sender] = OrderedDict()

    def is_new(self, stream: bytes) -> bool:
        """No sender begins another incarnation."""
        return False

    def is_past(self, stream: bytes) -> bool:
        """Senders do not replace each other."""
        return False

    def begin(self, stream: bytes, start: int) -> Sender:
        """Add a sender that is received from a sequence number on."""
        sender = self._senders[stream] = Sender(stream, start)
        if len(self._senders) > _MOST_SENDERS:
            self._senders.popitem(last=False)
        return sender

    def find(self, stream: bytes) -> Sender | None:
        """The sender of a stream."""
        return self._senders.get(stream)

    def place(self, sender: Sender, header: Header) -> Placed | None:
        """The offsets of a message of a sender; None for a duplicate."""
        if header.next <= sender.next and header.first < header.next:
            return None
        lost = None
        if header.after > sender.next:
            missing = header.after - sender.next
            what = f"rows {sender.next} to {header.after} of sender {sender.name}"
            cause = f"{what} were not received"
            lost = (self.next, self.next + missing, cause)
            self.next += missing
        skip = max(0, min(sender.next, header.next) - header.first)
        first = self.next
        self.next += header.next - header.first - skip
        sender.next = max(sender.next, header.next)
        return Placed(first, self.next, skip, lost)

    def count(self, rows: int) -> Placed:
        """The offsets of rows without sequence numbers."""
        first, self.next = self.next, self.next + rows
        return Placed(first, self.next, 0, None)
