"""The first frame of messages between streamfactory's own senders and readers.

docs/zeromq.md has its layout. A frame has 68 bytes, little-endian, and may be followed
by the schema of the rows, an Arrow IPC message.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from streamfactory.spi import CorruptData

_MAGIC: Final = b"SFZ1"
"""With the version: another layout has another last byte."""
_LAYOUT: Final = struct.Struct("<4sBxxxI16s16sqqq")
SIZE: Final = _LAYOUT.size
_REMEDY: Final = (
    "the sender is no streamfactory program: set framing=plain, or close the endpoint "
    "to it"
)


class Kind(IntEnum):
    """What a message is for."""

    ROWS = 1
    """A batch follows."""
    MARK = 2
    """No rows; ``next`` may lie beyond ``after``, as behind the end of an epoch."""
    END = 3
    """The stream ended well at ``next``."""
    BROKEN = 4
    """The sender broke off at ``next``."""
    HELLO = 5
    """DEALER: who sends, and the schema; rows from ``after`` on are kept."""
    WELCOME = 6
    """ROUTER: send from ``next`` on. ``session`` is the reader's."""
    STORED = 7
    """ROUTER: rows before ``next`` are stored."""
    FENCED = 8
    """ROUTER: a later instance of this sender has come."""


@dataclass(frozen=True, slots=True)
class Header:
    """One first frame."""

    kind: Kind
    partition: int
    stream: bytes
    """16 bytes: what the numbers count, the incarnation."""
    after: int
    """``next`` of the sender's message before this one: another value than the
    reader's shows that messages are missing."""
    first: int
    """Of the first row."""
    next: int
    """Behind the last row."""
    session: bytes = bytes(16)
    """16 bytes: the instance of the sender; of `Kind.WELCOME` that of the reader."""

    def pack(self) -> bytes:
        """The frame."""
        return _LAYOUT.pack(
            _MAGIC,
            self.kind,
            self.partition,
            self.stream,
            self.session,
            self.after,
            self.first,
            self.next,
        )


def read_header(data: bytes) -> Header:
    """Read a first frame; what follows its 68 bytes is left alone.

    Raises:
        CorruptData: data_loss; the frame has another layout, or impossible numbers.
    """
    if len(data) < SIZE or data[:4] != _MAGIC:
        what = f"a message begins with {bytes(data[:8])!r}, which is no sequence frame"
        raise CorruptData(what, remedy=_REMEDY)
    _, kind, partition, stream, session, after, first, behind = _LAYOUT.unpack_from(
        data
    )
    try:
        known = Kind(kind)
    except ValueError:
        what = f"a sequence frame has the unknown kind {kind}"
        raise CorruptData(what, remedy=_REMEDY) from None
    if not 0 <= after <= first <= behind:
        what = f"a sequence frame has the numbers {after}, {first}, {behind}"
        raise CorruptData(what, remedy=_REMEDY)
    return Header(known, partition, stream, after, first, behind, session)
