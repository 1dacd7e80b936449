"""Exit statuses of commands."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final

from streamfactory.spi.errors import ErrorClass, MisuseError, StreamError

if TYPE_CHECKING:
    from collections.abc import Mapping


class Status(IntEnum):
    """The exit status of a command."""

    FINE = 0
    FAILED = 1
    BAD_INPUT = 2
    PLUGIN = 3
    INTERRUPTED = 130
    TERMINATED = 143


MEANINGS: Final[Mapping[Status, str]] = {
    Status.FINE: "success, perhaps with warnings",
    Status.FAILED: "the operation failed",
    Status.BAD_INPUT: "bad input, configuration or usage",
    Status.PLUGIN: "a plug-in is missing or broken",
    Status.INTERRUPTED: "interrupted",
    Status.TERMINATED: "terminated",
}


class UsageMistake(MisuseError):
    """The command line itself cannot be understood."""

    code = "usage"

    def __str__(self) -> str:
        return f"{self.what} ({self.remedy})"


class Interrupted(StreamError):
    """The user stopped the command."""

    code = "interrupted"


def status_of(error: StreamError) -> Status:
    """The exit status for an error."""
    by_class = {
        ErrorClass.CONFIG: Status.BAD_INPUT,
        ErrorClass.MISUSE: Status.BAD_INPUT,
        ErrorClass.PLUGIN: Status.PLUGIN,
    }
    return by_class.get(error.error_class, Status.FAILED)
