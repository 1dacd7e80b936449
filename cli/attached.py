"""Commands that another program starts, and that end when it does."""

from __future__ import annotations

import os
import signal
import threading

END = b"\0"
"""Ends a text on the standard input of a command that is attached."""


def end_with_input() -> None:
    """Make the end of the standard input a SIGTERM, also where its writer is killed."""
    threading.Thread(target=_follow, daemon=True).start()


def read_text() -> str:
    """The text on the standard input up to `END`; without it, the whole input."""
    found = bytearray()
    while not found.endswith(END) and (part := os.read(0, 1 << 16)):
        found += part
    return found.removesuffix(END).decode()


def _follow() -> None:
    # Not `sys.stdin`, whose lock would be held while the interpreter ends.
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
