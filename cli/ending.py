"""How a signal ends the process. Imports little: it is needed from the first moment."""

from __future__ import annotations

import os
import signal
import sys
import time

from streamfactory.cli.log_format import logs_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import NoReturn

ENDS = {
    signal.SIGINT: (130, "interrupted"),
    signal.SIGTERM: (143, "terminated"),
}
"""Exit status and message, by signal."""


def end_process(number: int, frame: FrameType | None = None) -> NoReturn:  # noqa: ARG001 - a handler
    """End the process at once, with one line on standard error."""
    status, word = ENDS[signal.Signals(number)]
    line = f"error: [interrupted] {word}\n"
    if logs_json(sys.argv):
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        line = f'{{"time": "{now}", "level": "error", "logger": "streamfactory.cli", '
        line += f'"message": "{word}", "code": "interrupted"}}\n'
    elif "--json" in sys.argv:
        line = f'{{"error": "interrupted", "what": "{word}"}}\n'
    os.write(2, line.encode())
    os._exit(status)
