"""One writer alone, in a folder whose file system has no hard links.

Publication is a look and a rename: between the two another writer could publish, and
lose its epoch. The second writer that can be seen is therefore refused.
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

    from streamfactory.arrowlog.disk.storage import Storage

_LOCK: Final = ".writer"

_lock = forks.Lock()
_held: Final[dict[Path, tuple[int, int]]] = {}
"""Locked files of this process: its id, and the descriptor."""


@final
class SingleWriterStorage(LocalStorage):
    """Files under a root, published by a check and a rename.

    The first publication locks the root, for as long as the process lives.
    """

    def __init__(
        self, root: Path, *, fsync: str = "always", interval: float = 1.0
    ) -> None:
        super().__init__(root, fsync=fsync, interval=interval)
        self._top = self.root

    def within(self, folder: str) -> Storage:
        inner = SingleWriterStorage(
            self.root / folder, fsync=self._fsync, interval=self._interval
        )
        inner._top = self._top
        return inner

    def _link(self, temporary: Path, final: Path) -> bool:
        _claim(self._top)
        with _lock:
            if final.exists():
                return False
            temporary.rename(final)
        self._settle_link(final)
        return True


def _claim(root: Path) -> None:
    """Lock a root for this process.

    Raises:
        StorageFailed: permanent; another process has it.
    """
    with _lock:
        held = _held.get(root)
        if held is not None and held[0] == os.getpid():
            return
        if held is not None:  # of the parent of this process: its lock, not ours
            _held.pop(root)
            with contextlib.suppress(OSError):
                os.close(held[1])
        file = os.open(root / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            _take(file)
        except OSError as error:
            os.close(file)
            msg = f"{root}: another process writes there, and single.writer=true"
            remedy = "let one process write, or use a file system with hard links"
            raise StorageFailed(msg, remedy=remedy) from error
        _held[root] = os.getpid(), file


def _take(file: int) -> None:
    """Lock an open file; not for systems that have no such locks."""
    import fcntl

    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
