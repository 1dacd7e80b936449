"""Atomic and durable writes of local files (rule P3)."""

from __future__ import annotations

import errno
import fcntl
import os
import time
import uuid
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Final

from streamfactory.spi.waits import wait_in_slices

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

_PATIENCE: Final = 10.0
"""Seconds to wait for another process, which locks a folder for one rename."""
_UNLOCKABLE: Final = frozenset({errno.EBADF, errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS})
"""Errors of file systems that do not lock folders, such as NFS: two changes at one
moment are not noticed there."""


def make_folder(folder: Path) -> None:
    """Create a folder and its parents, and sync the parent of each."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def replace_file(
    path: Path,
    content: bytes,
    unchanged: AbstractContextManager[object] | None = None,
    *,
    mode: int | None = None,
) -> None:
    """Replace a file atomically by rename; the caller syncs its folder.

    Args:
        path: The file.
        content: Its new content.
        unchanged: Entered for the time of the rename, which it may refuse.
        mode: Permissions of the file; by default those of a new one.
    """
    with _written(path, content, mode) as temporary, unchanged or nullcontext():
        temporary.replace(path)


def create_file(path: Path, content: bytes, *, mode: int | None = None) -> None:
    """Create a file with its content atomically; the caller syncs its folder.

    Args:
        path: The file.
        content: Its content.
        mode: Its permissions; by default those of a new file.

    Raises:
        FileExistsError: There is one, or a link.
    """
    with _written(path, content, mode) as temporary:
        os.link(temporary, path)  # unlike a rename, it replaces nothing
        temporary.unlink()


@contextmanager
def _written(path: Path, content: bytes, mode: int | None) -> Iterator[Path]:
    """A synced file beside another one; it is removed if the block fails."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with temporary.open("xb") as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        yield temporary
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Sync a folder, so that its entries survive a crash."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Lock a folder against others that change its files, for the time of one rename.

    Raises:
        OSError: It cannot be opened; `TimeoutError`: another process has held the lock
            for `_PATIENCE` seconds.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)

    def locked(seconds: float) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(min(seconds, 0.01))
            return False
        except OSError as error:
            if error.errno not in _UNLOCKABLE:
                raise
        return True

    try:
        if not wait_in_slices(locked, _PATIENCE):
            msg = f"another process has locked its folder for {_PATIENCE:g} s"
            raise TimeoutError(msg)
        yield
    finally:
        os.close(descriptor)
