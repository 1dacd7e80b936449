"""Ports for servers of tests: no two tests, processes or runs of a machine share one.

They lie below those that the system hands out by itself (from 32768): a server that is
killed and comes again finds its port free.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

PORTS: Final = range(10_000, 32_000)
BLOCK: Final = 50
"""Ports that a process reserves at once."""


def free_port() -> int:
    """A port that nobody listens at, and that no other test is given."""
    return free_ports(1)


def free_ports(count: int) -> int:
    """The first of some free ports in a row.

    Raises:
        RuntimeError: Other processes have reserved all ports.
    """
    return _reserved(os.getpid()).take(count)


@cache
def _reserved(_process: int) -> Reserved:
    """Of one process: a fork has others."""
    return Reserved()


class Reserved:
    """Blocks of ports: each is the process's that holds the lock of its file."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.gettempdir(), f"test-ports-{os.getuid()}")
        self._folder.mkdir(exist_ok=True)
        self._locks: list[int] = []
        self._left: Iterator[int] = iter(())

    def take(self, count: int) -> int:
        """The first of some ports in a row; none of them is given twice.

        Raises:
            RuntimeError: Other processes have reserved all blocks.
        """
        while True:
            row: list[int] = []
            for port in self._left:
                row = [*row, port] if _is_free(port) else []
                if len(row) == count:
                    return row[0]
            self._left = iter(self._reserve())

    def _reserve(self) -> range:
        blocks = range(0, len(PORTS), BLOCK)
        for block in random.SystemRandom().sample(blocks, len(blocks)):
            lock = os.open(self._folder / str(block), os.O_CREAT | os.O_RDWR, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(lock)
                continue
            self._locks.append(lock)  # until this process ends
            return PORTS[block : block + BLOCK]
        msg = f"all ports are reserved, by the locks in {self._folder}"
        raise RuntimeError(msg)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
