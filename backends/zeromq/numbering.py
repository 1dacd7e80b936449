"""The offsets of one partition, from the sequence numbers of its senders.

Pure bookkeeping: no sockets. Of one sender the offsets are its own numbers and the
incarnation is its stream. Of several, and of programs that send no numbers, this side
counts, from 0 on for each time that it is started.
"""

from __future__ import annotations

import uuid
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from streamfactory.backends.zeromq.protocol import Header

_MOST_SENDERS: Final = 100_000
"""Senders that are remembered; each restart of one is another."""


@dataclass(slots=True)
class Placed:
    """Where the rows of a message are in the partition."""

    first: int
    next: int
    skip: int
    """Rows at the beginning that were received before."""
    lost: tuple[int, int, str] | None
    """Offsets that are missing before it, and why; the end is exclusive."""


@dataclass(slots=True)
class Sender:
    """What is known of one stream."""

    stream: bytes
    next: int
    """Its number of the next row."""
    identity: bytes = b""
    """Where answers to it go; dealer-router alone."""
    session: bytes = b""
    """Which instance of the sender it is."""
    spans: list[tuple[int, int]] = field(default_factory=list)
    """Offsets of the partition, each with this sender's number: the end of a message
    that was not acknowledged yet. Only where the two differ."""

    @property
    def name(self) -> str:
        """For messages."""
        return self.stream.hex()


class OwnNumbers:
    """The offsets are those of one sender at a time."""

    def __init__(self) -> None:
        self.current: Sender | None = None
        self._past: OrderedDict[bytes, None] = OrderedDict()
        self.next = 0

    @property
    def incarnation(self) -> str | None:
        """The sender's stream; None before one has come."""
        return None if self.current is None else self.current.name

    def is_new(self, stream: bytes) -> bool:
        """Whether messages of a stream would begin another incarnation."""
        return self.current is None or (
            stream != self.current.stream and stream not in self._past
        )

    def is_past(self, stream: bytes) -> bool:
        """Whether another sender has taken the place of this one."""
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
        """Where a message of the current sender is; None for one received before."""
        if header.next <= self.next and header.first < header.next:
            return None
        lost = None
        if header.after > self.next:
            lost = (self.next, header.after, "messages of the sender were not received")
        first = max(header.first, min(self.next, header.next))
        self.next = sender.next = max(self.next, header.next)
        return Placed(first, self.next, max(0, first - header.first), lost)


class MergedNumbers:
    """This side counts: rows in the order of their receipt, and what is missing."""

    def __init__(self) -> None:
        self.incarnation: str | None = uuid.uuid4().hex
        self.next = 0
        self._senders: OrderedDict[bytes, Sender] = OrderedDict()

    def is_new(self, stream: bytes) -> bool:
        """No sender begins another incarnation."""
        return False

    def is_past(self, stream: bytes) -> bool:
        """No sender takes the place of another."""
        return False

    def begin(self, stream: bytes, start: int) -> Sender:
        """Add a sender, which is received from a number on."""
        sender = self._senders[stream] = Sender(stream, start)
        if len(self._senders) > _MOST_SENDERS:
            self._senders.popitem(last=False)
        return sender

    def find(self, stream: bytes) -> Sender | None:
        """The sender of a stream."""
        return self._senders.get(stream)

    def place(self, sender: Sender, header: Header) -> Placed | None:
        """Where a message of a sender is; None for one received before."""
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
        """The place of rows without a number."""
        first, self.next = self.next, self.next + rows
        return Placed(first, self.next, 0, None)
