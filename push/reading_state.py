"""The states of reading a push table, and what leads from one to another."""

from __future__ import annotations

import enum
from typing import Final

from streamfactory.spi import ClosedError, MisuseError

_ONCE: Final = "a push table can be read once, and this one was read already"
_AGAIN: Final = "create another table, or one with keep=, which can be read repeatedly"


class ReadingState(enum.Enum):
    """How far the reading of a table without ``keep`` is.

    ========  ==========  ============  ==========
    state     scan        claim a lane  finish
    ========  ==========  ============  ==========
    UNREAD    SCANNED     BY_LANES      CLOSED
    SCANNED   refused     refused       FINISHED
    BY_LANES  refused     BY_LANES      FINISHED
    FINISHED  refused     refused       FINISHED
    CLOSED    refused     refused       CLOSED
    ========  ==========  ============  ==========
    """

    UNREAD = enum.auto()
    SCANNED = enum.auto()
    """One scan reads all lanes."""
    BY_LANES = enum.auto()
    """Each lane belongs to a reader of the stream type ``push``."""
    FINISHED = enum.auto()
    """It was read, to its end or not."""
    CLOSED = enum.auto()
    """It was closed before anything was read."""

    @property
    def is_over(self) -> bool:
        """Whether producers are refused, because no reader is left."""
        return self in {ReadingState.FINISHED, ReadingState.CLOSED}


class ReadingEvent(enum.Enum):
    """What a reader does."""

    SCAN = enum.auto()
    CLAIM = enum.auto()
    FINISH = enum.auto()


_NEXT: Final = {
    (ReadingState.UNREAD, ReadingEvent.SCAN): ReadingState.SCANNED,
    (ReadingState.UNREAD, ReadingEvent.CLAIM): ReadingState.BY_LANES,
    (ReadingState.UNREAD, ReadingEvent.FINISH): ReadingState.CLOSED,
    (ReadingState.SCANNED, ReadingEvent.FINISH): ReadingState.FINISHED,
    (ReadingState.BY_LANES, ReadingEvent.CLAIM): ReadingState.BY_LANES,
    (ReadingState.BY_LANES, ReadingEvent.FINISH): ReadingState.FINISHED,
    (ReadingState.FINISHED, ReadingEvent.FINISH): ReadingState.FINISHED,
    (ReadingState.CLOSED, ReadingEvent.FINISH): ReadingState.CLOSED,
}


def after(state: ReadingState, event: ReadingEvent) -> ReadingState:
    """Return the state after an event.

    Raises:
        ClosedError: misuse; the table was closed unread.
        MisuseError: misuse; the table is read, or was read, by another reader.
    """
    found = _NEXT.get((state, event))
    if found is not None:
        return found
    if state is ReadingState.CLOSED:
        msg = "the table is closed"
        raise ClosedError(msg)
    raise read_once()


def read_once() -> MisuseError:
    """The error of a second reader."""
    return MisuseError(_ONCE, remedy=_AGAIN)
