"""Storage for a single writer, in a file system without hard links.

Publication is a check and a rename, which is not atomic: a concurrent writer could lose
its epoch. A second writer is therefore refused if it is detected.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Final, final

from streamfactory.arrowlog.disk import forks
from streamfactory.arrowlog.disk.local import LocalStorage
from streamfactory.spi import StorageFailed

if TYPE_CHECKING:
    from pathlib import Path

_LOCK: Final = ".writer"

_lock = forks.Lock()
_held: Final[dict[Path, tuple[int, int]]] = {}
"""Locked files: process id and descriptor."""


@final
class SingleWriterStorage(LocalStorage):
    """Files under a root, published by a check and a rename.

    The first publication locks the root, for as long as the process lives.
    """

    _top: Path | None = None
    """The locked root; None if it is this one."""

    def _at(self, root: Path) -> LocalStorage:
        inner = SingleWriterStorage(root, fsync=self._fsync, interval=self._interval)
        inner._top = self._top or self.root
        return inner

    def _link(self, temporary: Path, final: Path) -> bool:
        _claim(self._top or self.root)
        with _lock:
            if not self._folders.rename(str(temporary), final.name):
                return False
        self._settle_link(final)
        return True


def _claim(root: Path) -> None:
    """Lock a root for this process.

    Raises:
        StorageFailed: permanent; another process has locked it.
    """
    with _lock:
        held = _held.get(root)
        if held is not None and held[0] == os.getpid():
            return
        if held is not None:  # of the parent of this process: its lock, not ours
            _held.pop(root)
            with contextlib.suppress(OSError):
                os.close(held[1])
        # A link would create a file elsewhere, and a pipe would block.
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        file = os.open(root / _LOCK, flags, 0o666)
        try:
            _take(file)
        except OSError as error:
            os.close(file)
            msg = f"{root}: another process writes there, but single.writer=true is set"
            remedy = "let one process write, or use a file system with hard links"
            raise StorageFailed(msg, remedy=remedy) from error
        _held[root] = os.getpid(), file


def _take(file: int) -> None:
    """Lock an open file; does nothing on systems without such locks."""
    import fcntl

    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
