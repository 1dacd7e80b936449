"""The sequence frame: first frame of messages between streamfactory programs.

docs/zeromq.md describes its layout: 68 bytes, little-endian, which may be followed by
the schema of the rows as an Arrow IPC message.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from streamfactory.spi import CorruptData

_MAGIC: Final = b"SFZ1"
"""Includes the version: its last byte changes with the layout."""
_LAYOUT: Final = struct.Struct("<4sBxxxI16s16sqqq")
SIZE: Final = _LAYOUT.size
_REMEDY: Final = (
    "the sender is not a streamfactory program: set framing=plain, or restrict access "
    "to "
    "the endpoint"
)


class Kind(IntEnum):
    """Kind of a message."""

    ROWS = 1
    """A batch follows."""
    MARK = 2
    """No rows; ``next`` may be beyond ``after``, for example at the end of an epoch."""
    END = 3
    """The stream finished at ``next``."""
    BROKEN = 4
    """The sender aborted at ``next``."""
    HELLO = 5
    """DEALER: identity and schema of the sender; it keeps rows from ``after`` on."""
    WELCOME = 6
    """ROUTER: send from ``next`` on. ``session`` is the reader's."""
    STORED = 7
    """ROUTER: rows before ``next`` are stored."""
    FENCED = 8
    """ROUTER: a later instance of this sender has connected."""


@dataclass(frozen=True, slots=True)
class Header:
    """A sequence frame."""

    kind: Kind
    partition: int
    stream: bytes
    """16 bytes: the stream id, which is the incarnation."""
    after: int
    """``next`` of the sender's previous message. Another value than the reader's shows
    that messages are missing."""
    first: int
    """Number of the first row."""
    next: int
    """Number after the last row."""
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
    """Parse a sequence frame; bytes after the first 68 are ignored.

    Raises:
        CorruptData: data_loss; another layout, or inconsistent numbers.
    """
    if len(data) < SIZE or data[:4] != _MAGIC:
        what = (
            f"a message begins with {bytes(data[:8])!r}, which is not a sequence frame"
        )
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
        what = f"a sequence frame has inconsistent numbers: {after}, {first}, {behind}"
        raise CorruptData(what, remedy=_REMEDY)
    return Header(known, partition, stream, after, first, behind, session)
