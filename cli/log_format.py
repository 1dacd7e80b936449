"""The option ``--log-format``, read before the command line is parsed.

Errors of a line that cannot be parsed, and signals, are lines of the log, too. Imports
nothing: the entry point needs it before it answers signals.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def logs_json(arguments: Sequence[str]) -> bool:
    """Whether a command line asks for a log as JSON lines, before it is parsed."""
    for at, word in enumerate(arguments):
        if word == "--log-format":
            return [*arguments[at + 1 : at + 2]] == ["json"]
        if word.startswith("--log-format="):
            return word.endswith("=json")
    return False
