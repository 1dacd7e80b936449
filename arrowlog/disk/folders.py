"""Folders below a root, reached without following a symbolic link.

The path of the root may contain links, because the configuration has it. Below it,
other users may be able to write, and a link would redirect reads and removals.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from streamfactory.arrowlog.disk import forks
from streamfactory.spi import CorruptData, FormatRefused

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from streamfactory.spi import StreamError

_MOST: Final = 64
"""Maximum number of folders that are kept open."""
_REFERENCE: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
"""Flags to open a folder for access to its files: on Linux without the right to
list."""
_READING: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""Flags to open a file: without blocking, as a pipe would."""
_CREATING: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LISTING: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NOT_OPENED: Final = frozenset({errno.ELOOP, errno.EMLINK, errno.ENXIO})
"""Error numbers of opening a link or a socket; EMLINK on BSD."""
_SPECIAL: Final = frozenset({"", ".", ".."})
_REMEDY: Final = "remove it, and check who can write the folder"
_FOREIGN_REMEDY: Final = "remove it; symbolic links are followed with follow.links=true"


@dataclass(frozen=True, slots=True)
class Modes:
    """Permissions of new files and folders; None applies the umask of the process."""

    file: int | None = None
    folder: int | None = None


@final
class Folder:
    """An open folder, closed when it is no longer referenced."""

    __slots__ = ("fd", "identity")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        status = os.fstat(fd)
        self.identity = status.st_dev, status.st_ino

    def __del__(self) -> None:
        os.close(self.fd)


@final
class Folders:
    """Access to folders and files below one root. Thread-safe.

    All paths are absolute. Links are followed only in the root's own path, which is
    from the configuration. What is opened for reading is a regular file: nothing that
    waits for a writer, or has no end.

    Args:
        root: An absolute path.
        modes: Permissions of new folders and files.
        foreign: Whether files are those of other programs: refused with
            `FormatRefused` instead of `CorruptData`.
        links: Whether links are followed below the root, too.
    """

    def __init__(
        self,
        root: Path,
        modes: Modes,
        *,
        foreign: bool = False,
        links: bool = False,
    ) -> None:
        self._root = str(root)
        self._modes = modes
        self._foreign, self._links = foreign, links
        self._reading = _READING if links else _READING | os.O_NOFOLLOW
        self._known: OrderedDict[str, Folder] = OrderedDict()
        self._lock = forks.Lock()

    def get(self, path: str) -> Folder:
        """Return an open folder.

        Raises:
            FileNotFoundError: There is none.
            NotADirectoryError: Something else has its name.
            CorruptData: data_loss; the path contains a link.
        """
        known = self._known.get(path)
        if known is not None:
            # It may have been replaced by another folder.
            status = os.stat(path)  # noqa: PTH116 - no Path on the way of the data
            if (status.st_dev, status.st_ino) == known.identity:
                return known
        found = self._reach(path)
        with self._lock:
            self._known[path] = found
            self._known.move_to_end(path)
            if len(self._known) > _MOST:
                self._known.popitem(last=False)
        return found

    def forget(self) -> None:
        """Close all folders; the next call opens them again."""
        with self._lock:
            self._known.clear()

    # --- files ------------------------------------------------------------------

    def create(self, path: str) -> int:
        """Return a descriptor of a new file for writing.

        Raises:
            FileExistsError: Something has that name.
            FileNotFoundError: There is no such folder.
        """
        folder, name = self._split(path)
        mode = self._modes.file
        wanted = 0o666 if mode is None else mode
        fd = os.open(name, _CREATING, wanted, dir_fd=folder.fd)
        if mode is not None:
            try:
                os.fchmod(fd, mode)
            except BaseException:
                os.close(fd)
                raise
        return fd

    def read(self, path: str) -> tuple[int, os.stat_result]:
        """Return a descriptor of a regular file for reading, and its status.

        Raises:
            FileNotFoundError: There is none.
            CorruptData, FormatRefused: It is a link, a folder, a pipe or a device.
        """
        folder, name = self._split(path)
        try:
            fd = os.open(name, self._reading, dir_fd=folder.fd)
        except OSError as error:
            if error.errno in _NOT_OPENED:
                raise self._refused(path) from None
            raise
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise self._refused(path)
        except BaseException:
            os.close(fd)
            raise
        return fd, status

    def status(self, path: str) -> os.stat_result:
        """Return the status of a regular file.

        Raises:
            FileNotFoundError: There is none.
            CorruptData: data_loss; it is something else.
        """
        folder, name = self._split(path)
        status = os.stat(name, dir_fd=folder.fd, follow_symlinks=self._links)
        if not stat.S_ISREG(status.st_mode):
            raise self._refused(path)
        return status

    def entry(self, path: str) -> os.stat_result:
        """Return the status of a regular file or a folder.

        Raises:
            FileNotFoundError: There is none.
            CorruptData, FormatRefused: It is something else.
        """
        folder, name = self._split(path)
        status = os.stat(name, dir_fd=folder.fd, follow_symlinks=self._links)
        if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
            raise self._refused(path)
        return status

    def remove(self, path: str) -> None:
        """Remove a file, or a link itself; missing files are ignored."""
        with contextlib.suppress(FileNotFoundError):
            folder, name = self._split(path)
            os.unlink(name, dir_fd=folder.fd)

    def link(self, path: str, new: str) -> None:
        """Give a file another name in its folder.

        Raises:
            FileExistsError: Something has that name.
        """
        folder, name = self._split(path)
        os.link(
            name,
            new,
            src_dir_fd=folder.fd,
            dst_dir_fd=folder.fd,
            follow_symlinks=False,
        )

    def rename(self, path: str, new: str) -> bool:
        """Rename if the new name does not exist; False otherwise. Not atomic."""
        folder, name = self._split(path)
        with contextlib.suppress(FileNotFoundError):
            os.stat(new, dir_fd=folder.fd, follow_symlinks=False)
            return False
        os.rename(name, new, src_dir_fd=folder.fd, dst_dir_fd=folder.fd)
        return True

    def adopt(self, path: str, new: str) -> None:
        """Move a regular file of another program; a file with the new name is lost.

        Raises:
            FileNotFoundError: There is none.
            CorruptData: data_loss; it is something else.
        """
        (old, name), (folder, final) = self._split(path), self._split(new)
        self.status(path)  # a folder would get the name of a segment, and keep it
        os.rename(name, final, src_dir_fd=old.fd, dst_dir_fd=folder.fd)
        fd, _ = self.read(new)
        try:
            if self._modes.file is not None:
                os.fchmod(fd, self._modes.file)
        finally:
            os.close(fd)

    # --- folders ----------------------------------------------------------------

    def has(self, path: str) -> bool:
        """Whether there is a folder.

        Raises:
            NotADirectoryError: Something else has its name.
            CorruptData: data_loss; the path contains a link.
        """
        try:
            self.get(path)
        except FileNotFoundError:
            return False
        return True

    def make(self, path: str) -> None:
        """Create a folder, unless it exists."""
        folder, name = self._split(path)
        mode = self._modes.folder
        wanted = 0o777 if mode is None else mode
        try:
            os.mkdir(name, wanted, dir_fd=folder.fd)
        except FileExistsError:
            return
        if mode is not None:
            fd = os.open(name, _LISTING, dir_fd=folder.fd)
            try:
                # Keep the set-group-ID bit.
                os.fchmod(fd, mode | os.fstat(fd).st_mode & stat.S_ISGID)
            finally:
                os.close(fd)

    def names(self, path: str) -> list[str]:
        """The names in a folder."""
        folder = self.get(path)  # referenced, so that other threads do not close it
        fd = os.open(".", _LISTING, dir_fd=folder.fd)
        try:
            return os.listdir(fd)  # noqa: PTH208 - names, not paths
        finally:
            os.close(fd)

    def statuses(self, path: str) -> Iterator[tuple[str, os.stat_result]]:
        """The names in a folder, with the status of each.

        A link that is not followed, or leads nowhere, has its own status.
        """
        folder = self.get(path)
        fd = os.open(".", _LISTING, dir_fd=folder.fd)
        try:
            with os.scandir(fd) as entries:
                for entry in entries:
                    with contextlib.suppress(FileNotFoundError):
                        yield entry.name, self._status_of(entry)
        finally:
            os.close(fd)

    def _status_of(self, entry: os.DirEntry[str]) -> os.stat_result:
        if self._links:
            with contextlib.suppress(FileNotFoundError):
                return entry.stat()
        return entry.stat(follow_symlinks=False)

    def ages(self, path: str) -> dict[str, float]:
        """The regular files in a folder, and the seconds since each was written."""
        now, found = time.time(), {}
        folder = self.get(path)
        for name in self.names(path):
            with contextlib.suppress(FileNotFoundError):
                status = os.stat(name, dir_fd=folder.fd, follow_symlinks=False)
                if stat.S_ISREG(status.st_mode):
                    found[name] = now - status.st_mtime
        return found

    def remove_folder(self, path: str) -> None:
        """Remove a folder with its content, as far as possible.

        Links are removed, not followed. Another process may remove it concurrently.
        """
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            folder, name = self._split(path)
            shutil.rmtree(name, ignore_errors=True, dir_fd=folder.fd)

    def sync(self, path: str) -> None:
        """Sync a file or a folder."""
        if self._is_below(path):
            folder, name = self._split(path)
            fd = os.open(name, _READING | os.O_NOFOLLOW, dir_fd=folder.fd)
        else:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    # --- paths ------------------------------------------------------------------

    def _split(self, path: str) -> tuple[Folder, str]:
        """The folder of a path, and the last component.

        Raises:
            CorruptData: data_loss; that is no name.
        """
        folder, _, name = path.rpartition("/")
        if name in _SPECIAL or "\0" in path:
            msg = f"{path!r} is not a path of a file"
            raise CorruptData(msg)
        return self.get(folder or "/"), name

    def _is_below(self, path: str) -> bool:
        return path.startswith(f"{self._root}/")

    def _reach(self, path: str) -> Folder:
        if not self._is_below(path) or self._links:
            return Folder(os.open(path, _REFERENCE))
        folder = Folder(os.open(self._root, _REFERENCE))
        for name in path[len(self._root) + 1 :].split("/"):
            if name in _SPECIAL:
                msg = f"{path!r} is not a path of a folder"
                raise CorruptData(msg)
            try:
                flags = _REFERENCE | os.O_NOFOLLOW
                folder = Folder(os.open(name, flags, dir_fd=folder.fd))
            except NotADirectoryError:
                status = os.stat(name, dir_fd=folder.fd, follow_symlinks=False)
                if stat.S_ISLNK(status.st_mode):
                    what = f"{path} contains a symbolic link, {name!r}"
                    raise self._error(what) from None
                raise
        return folder

    def _refused(self, path: str) -> StreamError:
        return self._error(f"{path!r} is not a regular file")

    def _error(self, what: str) -> StreamError:
        if self._foreign:
            return FormatRefused(what, remedy=_FOREIGN_REMEDY)
        return CorruptData(what, remedy=_REMEDY)


def is_own(status: os.stat_result) -> bool:
    """Whether only this user (and root) can have written and can change a file."""
    others = stat.S_IWGRP | stat.S_IWOTH
    return status.st_uid == os.geteuid() and not status.st_mode & others
