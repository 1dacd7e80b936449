"""Refuses clients with threads in a child of a process that has used them."""

from __future__ import annotations

import os
from typing import final

from streamfactory.spi import Unsupported


@final
class ForkGuard:
    """Remembers the first process that used a client. One for each client.

    A client holds threads and locks that a fork does not carry over: its first call in
    the child would wait for ever.

    Args:
        what: What the client does, for the error.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._first: int | None = None

    def check(self) -> None:
        """Call before each use of the client.

        Raises:
            Unsupported: misuse; the client was used before this process was forked.
        """
        process = os.getpid()
        self._first = process if self._first is None else self._first
        if self._first != process:
            what = f"{self._what} after a fork"
            raise Unsupported(what, remedy="start the process with spawn or exec")
