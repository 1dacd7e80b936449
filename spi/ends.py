"""The five ways in which a stream can end, each a type of its own.

A timeout is never an end, and a reader that stops early is never an error.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finished:
    """The writer ended the stream."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The stream broke off: a lost connection, a crashed writer, a truncated file.

    Args:
        cause: The cause in one line; an error that is raised is an exception as well.
    """

    cause: str


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The stream was stopped by a user or program with the right to do so.

    Args:
        by: Who stopped it, for messages; empty if unknown.
    """

    by: str = ""


@dataclass(frozen=True, slots=True)
class ReaderFinished:
    """The reader stopped reading; for a writer this is a normal end.

    Also used if a transport cannot determine why its reader disconnected.
    """


@dataclass(frozen=True, slots=True)
class Abandoned:
    """The other side disappeared: it was garbage-collected, or its process died."""


End = Finished | Failed | Cancelled | ReaderFinished | Abandoned
