"""Storage in a local folder or a shared POSIX file system."""

from __future__ import annotations

import contextlib
import errno
import io
import mmap
import os
import threading
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from streamfactory.arrowlog.disk.folders import Folders, Modes, is_own
from streamfactory.arrowlog.disk.names import TEMPORARY, new_temporary
from streamfactory.arrowlog.disk.positioned import PositionedReads
from streamfactory.arrowlog.disk.storage import (
    LONGEST_READ,
    NewBlob,
    Opened,
    Storage,
    Watch,
    failed,
    too_long,
)
from streamfactory.arrowlog.disk.watching import watch_folder
from streamfactory.arrowlog.disk.writeback import WriteBackFile
from streamfactory.spi import StorageFailed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

_SMALL: Final = 64 << 10
"""Maximum size of files that are read instead of mapped, without a descriptor."""
_NO_LINKS: Final = frozenset(
    {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
)


class _NewFile(NewBlob):
    def __init__(self, storage: LocalStorage, name: str) -> None:
        self._storage = storage
        self._name = name
        # Arrow opens files by path only, which would follow links.
        file = storage.begin(name)
        self._file = (
            os.fdopen(file, "wb")
            if storage.lazy
            else io.BufferedWriter(WriteBackFile(file))
        )
        self.sink = pa.PythonFile(self._file, mode="w")

    def finish(self) -> int:
        with _translated(self._storage.root / self._name):
            self.sink.close()
            self._storage.sync_file(self._storage.root / self._name)
        return self._storage.size(self._name)

    def abandon(self) -> None:
        # On a full disk the close fails as well; the file is removed anyway.
        with contextlib.suppress(OSError, pa.ArrowException):
            self.sink.close()
        with contextlib.suppress(OSError):
            self._file.close()
        self._storage.drop(self._name)


class _Reads(PositionedReads):
    """A file that other users may change, read by position; owns its descriptor."""

    def __init__(self, fd: int, size: int) -> None:
        super().__init__(size)
        self._fd = fd

    def read_range(self, start: int, count: int) -> pa.Buffer:
        buffer = pa.allocate_buffer(count)
        view, done = memoryview(buffer), 0
        while done < count:
            found = os.preadv(self._fd, [view[done:]], start + done)
            if not found:
                msg = f"the file was truncated to less than {start + count} bytes"
                raise OSError(msg)
            done += found
        return buffer

    def close(self) -> None:
        if not self.closed:
            os.close(self._fd)
        super().close()


class LocalStorage(Storage):
    """Files under a root, published by hard links.

    Links below the root are not followed; the root's own path may contain links.

    Args:
        root: The folder; created at the first write.
        fsync: ``always``; ``interval``: after ``interval`` seconds, batched, and when
            closed; ``never``.
        interval: Seconds.
        modes: Permissions of new folders and files.
    """

    adopts = True

    def __init__(
        self,
        root: Path,
        *,
        fsync: str = "always",
        interval: float = 1.0,
        modes: Modes = Modes(),  # noqa: B008 - frozen
    ) -> None:
        self.root = root.absolute()
        self.location = str(self.root)
        self.lazy = fsync != "always"
        self._folders = Folders(self.root, modes)
        self._fsync = fsync
        self._interval = interval
        self._lock = threading.Lock()
        self._syncing = threading.Lock()
        self._unsynced: dict[Path, None] = {}
        self._timer: threading.Timer | None = None
        self._failure: OSError | None = None

    def within(self, folder: str) -> Storage:
        inner = self._at(self.root / folder)
        inner._folders = self._folders
        return inner

    def _at(self, root: Path) -> LocalStorage:
        """Return a storage at another root with the same options."""
        return LocalStorage(root, fsync=self._fsync, interval=self._interval)

    def read(self, name: str, longest: int = LONGEST_READ) -> bytes:
        place = self._place(name)
        with _translated(place):
            # Python's own buffering costs more than the system calls.
            file, status = self._folders.read(place)
            try:
                if status.st_size > longest:
                    raise too_long(place, status.st_size, longest)
                data = os.read(file, status.st_size + 1)
            finally:
                os.close(file)
            return data

    def publish(self, name: str, data: bytes) -> bool:
        final = self.root / name
        temporary = final.parent / new_temporary()
        with _translated(final):
            try:
                file = self._folders.create(str(temporary))
            except FileNotFoundError:
                self._make_folder(final.parent)
                file = self._folders.create(str(temporary))
            try:
                _write(file, data)
                self.sync_file(temporary)
                return self._link(temporary, final)
            finally:
                with contextlib.suppress(OSError):
                    self._folders.remove(str(temporary))

    def size(self, name: str) -> int:
        with _translated(self._place(name)):
            return self._folders.status(self._place(name)).st_size

    def written(self, name: str) -> float:
        with _translated(self._place(name)):
            return self._folders.status(self._place(name)).st_mtime * 1000

    def names(self, folder: str) -> Sequence[str]:
        with _translated(self.root / folder):
            try:
                found = self._folders.names(str(self.root / folder))
            except (FileNotFoundError, NotADirectoryError):
                return []
        return [name for name in found if TEMPORARY.fullmatch(name) is None]

    def ages(self, folder: str) -> Mapping[str, float]:
        with _translated(self.root / folder):
            try:
                return self._folders.ages(str(self.root / folder))
            except (FileNotFoundError, NotADirectoryError):
                return {}

    def create(self, name: str) -> NewBlob:
        path = self.root / name
        with _translated(path):
            try:
                return _NewFile(self, name)
            except FileNotFoundError:
                self._make_folder(path.parent)
                return _NewFile(self, name)

    def begin(self, name: str) -> int:
        """Return a descriptor of a new file for writing."""
        return self._folders.create(self._place(name))

    def drop(self, name: str) -> None:
        """Remove an incomplete file."""
        with _translated(self._place(name)):
            self._folders.remove(self._place(name))

    def adopt(self, name: str, new: str) -> int:
        with _translated(self._place(name)):
            self._folders.adopt(self._place(name), self._place(new))
            self.sync_file(self.root / new)
        return self.size(new)

    def open(self, name: str) -> Opened:
        with _translated(self._place(name)):
            file, status = self._folders.read(self._place(name))
            own = is_own(status)
            try:
                return Opened(_readable(file, status.st_size, mapped=own), own)
            finally:
                os.close(file)

    def settle(self, folder: str) -> None:
        with _translated(self.root / folder):
            self.sync_folder(self.root / folder)

    def secure(self, names: Iterable[str]) -> None:
        if not self.lazy:
            return
        paths = [self.root / name for name in names]
        for path in [*paths, *dict.fromkeys(path.parent for path in paths)]:
            with _translated(path):
                self._sync(path)

    def prepare(self, folder: str) -> None:
        with _translated(self.root / folder):
            self._make_folder(self.root / folder)

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            with _translated(self._place(name)):
                self._folders.remove(self._place(name))

    def remove_folder(self, folder: str) -> None:
        with _translated(self.root / folder):
            self._folders.remove_folder(self._place(folder))

    def watch(self, folder: str) -> Watch:
        return watch_folder(self.root / folder)

    def close(self) -> None:
        self._sync_now()
        self._folders.forget()
        self._raise_deferred()

    def _place(self, name: str) -> str:
        """Return a path as text: commits call it so often that `Path` would be slow."""
        return f"{self.location}/{name}"

    def sync_file(self, path: Path) -> None:
        """Sync a file, according to the option ``fsync``."""
        if self._fsync == "always":
            self._sync(path)
        elif self._fsync == "interval" and TEMPORARY.fullmatch(path.name) is None:
            self._defer(path)

    def sync_folder(self, path: Path) -> None:
        """Sync a folder, according to the option ``fsync``."""
        if self._fsync == "always":
            self._sync(path)
        elif self._fsync == "interval":
            self._defer(path)

    def _defer(self, path: Path) -> None:
        """Sync it within the interval, after earlier deferred paths."""
        self._raise_deferred()
        with self._lock:
            self._unsynced.pop(path, None)
            self._unsynced[path] = None
            if self._timer is None:
                self._timer = threading.Timer(self._interval, self._sync_now)
                self._timer.daemon = True
                self._timer.start()

    def _sync_now(self) -> None:
        # One pass after the other: a later one has paths that must not be on the medium
        # before those of an earlier one, and closing waits for all of them.
        with self._syncing:
            with self._lock:
                pending, self._unsynced = self._unsynced, {}
                timer, self._timer = self._timer, None
            if timer is not None:
                timer.cancel()
            for path in pending:
                try:
                    self._sync(path)
                except FileNotFoundError:  # removed meanwhile
                    continue
                except OSError as error:
                    self._failure = failed(path, error)

    def _raise_deferred(self) -> None:
        """Raise the error of an earlier deferred sync."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _sync(self, path: Path) -> None:
        """Sync a path; all syncs call it."""
        self._folders.sync(str(path))

    def _link(self, temporary: Path, final: Path) -> bool:
        """Publish a written file by a hard link.

        A rename would overwrite, and an exclusive create could leave an incomplete file
        after a crash.
        """
        try:
            self._folders.link(str(temporary), final.name)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            msg = f"{self.location}: this file system has no hard links ({error})"
            remedy = (
                "several writers require exclusive publication: use another file "
                "system, "
                "or an object store"
            )
            raise StorageFailed(msg, remedy=remedy) from error
        self._settle_link(final)
        return True

    def _settle_link(self, final: Path) -> None:
        """Sync what was published, according to the option ``fsync``."""
        try:
            if self._fsync == "interval":
                self.sync_file(final)
            self.sync_folder(final.parent)
        except OSError as error:
            msg = f"{final}: published, but may not survive a power failure: {error}"
            raise StorageFailed(msg) from error

    def _make_folder(self, path: Path) -> None:
        missing = []
        while not self._folders.has(str(path)):
            missing.append(path)
            path = path.parent
        for folder in reversed(missing):
            self._folders.make(str(folder))
            self.sync_folder(folder.parent)


def _write(file: int, data: bytes) -> None:
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(file, view) :]
    finally:
        os.close(file)


def _readable(fd: int, size: int, *, mapped: bool) -> Any:
    """Return an Arrow file of a descriptor, which the caller closes.

    Args:
        fd: The descriptor.
        size: Bytes.
        mapped: Whether large files may be mapped. If another program truncates a mapped
            file, its reader is killed; if it writes, checked values change.
    """
    if size <= _SMALL:
        return pa.BufferReader(os.read(fd, size))
    if mapped:
        return pa.BufferReader(
            pa.py_buffer(mmap.mmap(fd, size, access=mmap.ACCESS_READ))
        )
    return pa.PythonFile(_Reads(os.dup(fd), size), mode="r")


@contextlib.contextmanager
def _translated(path: Path | str) -> Iterator[None]:
    """Translate errors of the file system; `FileNotFoundError` is kept."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        translated = failed(path, error)
        raise translated from (None if translated is error else error)
