"""The entry point, which answers signals in one line from its first moment on.

Importing the command line takes a third of a second, in which Python would answer an
interrupt with a traceback: nothing of it is imported before the handlers are set.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress

from streamfactory.cli.ending import ENDS, end_process
from streamfactory.cli.importing import exempt_imports, importing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn


def main() -> NoReturn:
    """Run the command ``streamfactory``; ends the process."""
    _end_on_signals()
    exempt_imports()
    with importing():
        from streamfactory.cli.program import run_program
        from streamfactory.cli.signals import raising_on_signals
        from streamfactory.wiring.core.bounded import calls_left

    with raising_on_signals():
        status = run_program(sys.argv[1:])
        # Nothing is left that an exception could end; Python's own last steps print it.
        _end_on_signals()
        if calls_left() or status in [ended for ended, _ in ENDS.values()]:
            _leave(status)
    sys.exit(status)


def run(arguments: Sequence[str]) -> int:
    """Run one command line; answers the exit status.

    Args:
        arguments: Without the program's name.
    """
    from streamfactory.cli.program import run_program

    return run_program(arguments)


def _leave(status: int) -> NoReturn:
    """End the process without its threads, which may wait or be inside of a client."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # its reader has gone, or it is closed
            stream.flush()
    os._exit(status)


def _end_on_signals() -> None:
    for number in ENDS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, end_process)
