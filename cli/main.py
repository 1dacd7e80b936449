"""The entry point, which answers signals in one line from its first moment on.

Importing the command line takes a third of a second, in which Python would answer an
interrupt with a traceback: nothing of it is imported before the handlers are set.
"""

from __future__ import annotations

import os
import signal
import sys
import time

from streamfactory.cli.importing import importing
from streamfactory.cli.log_format import logs_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType
    from typing import NoReturn

_ENDS = {
    signal.SIGINT: (130, "interrupted"),
    signal.SIGTERM: (143, "terminated"),
}


def main() -> NoReturn:
    """Run the command ``streamfactory``; ends the process."""
    _end_on_signals()
    with importing():
        from streamfactory.cli.program import raise_on_signals

    raise_on_signals(_ENDS)
    status = run(sys.argv[1:])
    # Nothing is left that an exception could end; Python's own last steps print it.
    _end_on_signals()
    sys.exit(status)


def run(arguments: Sequence[str]) -> int:
    """Run one command line; answers the exit status.

    Args:
        arguments: Without the program's name.
    """
    from streamfactory.cli.program import run_program

    return run_program(arguments)


def _end_on_signals() -> None:
    for number in _ENDS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)


def _end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the system's
    status, word = _ENDS[signal.Signals(number)]
    line = f"error: [interrupted] {word}\n"
    if logs_json(sys.argv):
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        line = f'{{"time": "{now}", "level": "error", "logger": "streamfactory.cli", '
        line += f'"message": "{word}", "code": "interrupted"}}\n'
    elif "--json" in sys.argv:
        line = f'{{"error": "interrupted", "what": "{word}"}}\n'
    os.write(2, line.encode())
    os._exit(status)
