"""The lock of the writers of a topic, which ends with the process that has it."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from streamfactory.arrowlog.disk import forks
from streamfactory.backends.shm.layout import LOCK
from streamfactory.spi import StreamTimeout

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_PATIENCE: Final = 60.0
"""Seconds that a writer waits for another one, which may wait for readers itself."""
_FIRST, _LONGEST = 0.00005, 0.001


class WriterLock:
    """One lock of all processes and threads that write a topic.

    Args:
        folder: Of the topic.
        patience: Seconds for which others are waited for.
    """

    def __init__(self, folder: Path, patience: float) -> None:
        self._path = folder / LOCK
        self._patience = max(patience, 0) + _PATIENCE
        self._thread = threading.Lock()
        self._file = -1
        forks.register(self)

    def reset_after_fork(self) -> None:
        self.close()
        self._thread = threading.Lock()

    def close(self) -> None:
        """Close the file, which ends the lock."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Have the lock.

        Raises:
            StreamTimeout: transient; another writer has it for too long.
        """
        deadline = time.monotonic() + self._patience
        if not self._thread.acquire(timeout=self._patience):
            raise self._late()
        try:
            if self._file < 0:
                flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
                self._file = os.open(self._path, flags, 0o600)
            self._lock(deadline)
            try:
                yield
            finally:
                fcntl.flock(self._file, fcntl.LOCK_UN)
        finally:
            self._thread.release()

    def _lock(self, deadline: float) -> None:
        pause = _FIRST
        while True:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise self._late() from None
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST)
            else:
                return

    def _late(self) -> StreamTimeout:
        msg = f"another writer has kept {self._path} locked"
        return StreamTimeout(msg, remedy="look which process has it: `fuser` shows it")
