"""Replies of a dealer-router reader to its senders: where to start, and what is stored.

A sender keeps messages until the reader reports them as stored, and sends them again
from the requested row. Nothing here blocks.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from streamfactory.backends.zeromq.numbering import OwnNumbers
from streamfactory.backends.zeromq.protocol import Header, Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamfactory.backends.zeromq.numbering import MergedNumbers, Sender

    Numbers = OwnNumbers | MergedNumbers

_PAUSE: Final = 0.2
"""Seconds between two requests for the same message."""


@dataclass(slots=True)
class _Peer:
    """State of the exchange with one sender."""

    sender: Sender
    released: int
    """The sender no longer keeps rows before this number."""
    is_welcome: bool = False
    requested: tuple[int, float] = (-1, 0.0)
    stored: int = -1
    """The last number that was reported as stored."""


class SenderReplies:
    """Replies to the senders of one partition.

    All methods but `store` require the lock of the partition reader.

    Args:
        send: Sends a header to an identity.
        is_merged: Whether offsets are assigned here instead of by a single sender.
    """

    def __init__(self, send: Callable[[bytes, Header], None], *, is_merged: bool):
        self._send = send
        self._is_merged = is_merged
        self._session = os.urandom(16)
        self._peers: dict[bytes, _Peer] = {}
        self._asked: dict[bytes, float] = {}
        self._fenced: set[bytes] = set()
        """Sessions of senders that were replaced by later instances."""
        self._lock = threading.Lock()
        self._to_store: dict[str, int] = {}

    def introduce(self, sender: Sender, identity: bytes, header: Header) -> None:
        """Handle a HELLO: a new or returning sender, or a repeated request."""
        if header.session in self._fenced:
            self._reply(Kind.FENCED, identity, header.stream, 0)
            return
        if not self._is_merged:
            # One sender at a time.
            for stream in [*self._peers]:
                if stream != header.stream:
                    self._fence(self._peers.pop(stream).sender)
        if sender.session not in (b"", header.session):
            self._fence(sender)
        before = self._peers.get(header.stream)
        sender.identity, sender.session = identity, header.session
        peer = self._peers[header.stream] = _Peer(sender, header.after)
        self._asked.pop(identity, None)
        if self._is_merged or (before is not None and before.is_welcome):
            self._welcome(peer)

    def owner(self, identity: bytes, header: Header, numbers: Numbers) -> Sender | None:
        """The sender of a message; None if it must not be read, after replying why."""
        sender = numbers.find(header.stream)
        peer = self._peers.get(header.stream)
        if header.session in self._fenced:
            self._reply(Kind.FENCED, identity, header.stream, 0)
        elif sender is None or peer is None or sender.session != header.session:
            now = time.monotonic()
            if now - self._asked.get(identity, 0.0) > _PAUSE:
                self._asked[identity] = now
                self._reply(Kind.HELLO, identity, header.stream, 0)
        elif peer.is_welcome:
            sender.identity = identity
            return sender
        return None

    def welcome(self, numbers: Numbers, start: int) -> None:
        """Tell the only sender to start at an offset."""
        if not isinstance(numbers, OwnNumbers) or numbers.current is None:
            return
        sender = numbers.current
        peer = self._peers.get(sender.stream)
        if peer is None or peer.is_welcome:
            return
        numbers.next = sender.next = max(start, sender.next)
        self._welcome(peer)

    def rewind(self, numbers: Numbers, start: int) -> bool:
        """Tell the only sender to send again; False if it does not keep the rows."""
        if not isinstance(numbers, OwnNumbers) or numbers.current is None:
            return False
        sender, earliest = numbers.current, self.earliest(numbers)
        if earliest is None or start < earliest:
            return False
        numbers.next = sender.next = start
        self._welcome(self._peers[sender.stream])
        return True

    def earliest(self, numbers: Numbers) -> int | None:
        """First offset that the only sender still keeps; None if unknown."""
        if not isinstance(numbers, OwnNumbers) or numbers.current is None:
            return None
        peer = self._peers.get(numbers.current.stream)
        return None if peer is None else max(peer.released, peer.stored)

    def request(self, sender: Sender) -> None:
        """Request missing messages of a sender again."""
        peer = self._peers[sender.stream]
        now = time.monotonic()
        number, since = peer.requested
        if number != sender.next or now - since > _PAUSE:
            peer.requested = (sender.next, now)
            self._welcome(peer)

    def note(self, sender: Sender, offset: int) -> None:
        """Record the offset at which a message of a sender ends."""
        if self._is_merged and sender.identity:
            sender.spans.append((offset, sender.next))

    def store(self, incarnation: str | None, offset: int, current: str | None) -> None:
        """Record that rows before an offset are stored.

        Any thread; `flush` sends it.
        """
        counted = incarnation or current
        if counted is None:
            return
        with self._lock:
            self._to_store[counted] = max(offset, self._to_store.get(counted, 0))

    def flush(self) -> None:
        """Report stored rows to the senders."""
        if not self._peers:
            return
        with self._lock:
            stored = dict(self._to_store)
        for peer in self._peers.values():
            sender = peer.sender
            if self._is_merged:
                upto = max(stored.values(), default=0)
                number = peer.stored
                while sender.spans and sender.spans[0][0] <= upto:
                    number = sender.spans.pop(0)[1]
            else:
                number = stored.get(sender.name, peer.stored)
            if number > peer.stored:
                peer.stored = number
                self._reply(Kind.STORED, sender.identity, sender.stream, number)

    def _fence(self, sender: Sender) -> None:
        self._fenced.add(sender.session)
        self._reply(Kind.FENCED, sender.identity, sender.stream, 0)

    def _welcome(self, peer: _Peer) -> None:
        peer.is_welcome = True
        sender = peer.sender
        self._reply(Kind.WELCOME, sender.identity, sender.stream, sender.next)

    def _reply(self, kind: Kind, identity: bytes, stream: bytes, number: int) -> None:
        self._send(identity, Header(kind, 0, stream, 0, 0, number, self._session))
