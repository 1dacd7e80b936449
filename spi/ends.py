"""How a stream can end: five kinds, different in type everywhere.

A timeout is never an end, and a reader that has enough is never an error.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finished:
    """The writer said that there is no more."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The other side broke off: torn connection, crashed writer, torn file."""

    cause: str
    """One line; the error itself travels as an exception where one is raised."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Somebody with the right to do so stopped it."""

    by: str = ""


@dataclass(frozen=True, slots=True)
class ReaderFinished:
    """The reader has what it wanted; for a writer this is a normal end.

    Where a transport cannot tell why its reader is gone, it is this one.
    """


@dataclass(frozen=True, slots=True)
class Abandoned:
    """A side vanished without a word: collected as garbage, or its process died."""


End = Finished | Failed | Cancelled | ReaderFinished | Abandoned
