"""Arguments in the library's messages as the options of the command line.

Messages name an argument of Python between backticks, with the value to pass, if any:
``pass `force=True` ``. Only errors are rewritten, and no data.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from streamfactory.spi import Problem

_ARGUMENT: Final = re.compile("`([a-z_]+)=(?:True)?([^`]*)`")
_OTHER: Final = {"writer_id": "writer"}
"""Options that have another name than the argument."""


def as_options(text: str) -> str:
    """Return a message that names options: ``pass --force``."""

    def option(found: re.Match[str]) -> str:
        name = _OTHER.get(found[1], found[1]).replace("_", "-")
        return f"--{name} {found[2]}".rstrip()

    return _ARGUMENT.sub(option, text)


def problem_as_options(problem: Problem) -> Problem:
    """Return a problem whose texts name options."""
    hint = problem.suggestion
    return replace(
        problem,
        what=as_options(problem.what),
        suggestion=None if hint is None else as_options(hint),
    )
