"""Storage in a folder of this machine, or of any that shares a POSIX file system."""

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
"""Bytes of a file that is read sooner than mapped; nor does it hold a descriptor."""
_NO_LINKS: Final = frozenset(
    {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
)


class _NewFile(NewBlob):
    def __init__(self, storage: LocalStorage, name: str) -> None:
        self._storage = storage
        self._name = name
        # Arrow's own files are opened by a path alone, which may lead over links.
        file = storage.begin(name)
        self._file = (
            os.fdopen(file, "wb")
            if storage.lazy
            else io.BufferedWriter(WriteBackFile(file))
        )
        self.sink = pa.PythonFile(self._file, mode="w")

    def finish(self) -> int:
        with _told(self._storage.root / self._name):
            self.sink.close()
            self._storage.sync_file(self._storage.root / self._name)
        return self._storage.size(self._name)

    def abandon(self) -> None:
        # A full disk fails the close as well: the file goes all the same.
        with contextlib.suppress(OSError, pa.ArrowException):
            self.sink.close()
        with contextlib.suppress(OSError):
            self._file.close()
        self._storage.drop(self._name)


class _Reads(io.RawIOBase):
    """A file that others may change, read by position, closed with this object."""

    def __init__(self, fd: int, size: int) -> None:
        self._fd = fd
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = base + offset
        return self._at

    def read(self, size: int = -1) -> bytes:
        return bytes(memoryview(self.read_buffer(size)))

    def read_buffer(self, size: int = -1) -> pa.Buffer:
        """Some bytes: fewer only at the end that the file had when it was opened."""
        left = max(0, self._size - self._at)
        count = left if size < 0 else min(size, left)
        buffer = pa.allocate_buffer(count)
        view, done = memoryview(buffer), 0
        while done < count:
            found = os.preadv(self._fd, [view[done:]], self._at + done)
            if not found:
                msg = f"the file was cut to less than {self._at + count} bytes"
                raise OSError(msg)
            done += found
        self._at += count
        return buffer

    def close(self) -> None:
        if not self.closed:
            os.close(self._fd)
        super().close()


class LocalStorage(Storage):
    """Files under a root, published by hard links.

    No link below the root is followed; the root itself may be reached through links.

    Args:
        root: The folder; made when something is first written.
        fsync: ``always``; ``interval``: ``interval`` seconds later, many at once, and
            when closed; ``never``.
        interval: Seconds.
        modes: Permissions of the folders and files that are made.
    """

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
        self._unsynced: dict[Path, None] = {}
        self._timer: threading.Timer | None = None
        self._failure: OSError | None = None

    def within(self, folder: str) -> Storage:
        inner = self._at(self.root / folder)
        inner._folders = self._folders
        return inner

    def _at(self, root: Path) -> LocalStorage:
        """Another one with the same options."""
        return LocalStorage(root, fsync=self._fsync, interval=self._interval)

    def read(self, name: str, longest: int = LONGEST_READ) -> bytes:
        place = self._place(name)
        with _told(place):
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
        with _told(final):
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
        with _told(self._place(name)):
            return self._folders.status(self._place(name)).st_size

    def names(self, folder: str) -> Sequence[str]:
        with _told(self.root / folder):
            try:
                found = self._folders.names(str(self.root / folder))
            except (FileNotFoundError, NotADirectoryError):
                return []
        return [name for name in found if TEMPORARY.fullmatch(name) is None]

    def ages(self, folder: str) -> Mapping[str, float]:
        with _told(self.root / folder):
            try:
                return self._folders.ages(str(self.root / folder))
            except (FileNotFoundError, NotADirectoryError):
                return {}

    def create(self, name: str) -> NewBlob:
        path = self.root / name
        with _told(path):
            try:
                return _NewFile(self, name)
            except FileNotFoundError:
                self._make_folder(path.parent)
                return _NewFile(self, name)

    def begin(self, name: str) -> int:
        """A descriptor of a new file, to be written."""
        return self._folders.create(self._place(name))

    def drop(self, name: str) -> None:
        """Remove a file that was begun."""
        with _told(self._place(name)):
            self._folders.remove(self._place(name))

    def open(self, name: str) -> Opened:
        with _told(self._place(name)):
            file, status = self._folders.read(self._place(name))
            own = is_own(status)
            try:
                return Opened(_readable(file, status.st_size, mapped=own), own)
            finally:
                os.close(file)

    def settle(self, folder: str) -> None:
        with _told(self.root / folder):
            self.sync_folder(self.root / folder)

    def secure(self, names: Iterable[str]) -> None:
        if not self.lazy:
            return
        paths = [self.root / name for name in names]
        for path in [*paths, *dict.fromkeys(path.parent for path in paths)]:
            with _told(path):
                self._sync(path)

    def prepare(self, folder: str) -> None:
        with _told(self.root / folder):
            self._make_folder(self.root / folder)

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            with _told(self._place(name)):
                self._folders.remove(self._place(name))

    def remove_folder(self, folder: str) -> None:
        with _told(self.root / folder):
            self._folders.remove_folder(self._place(folder))

    def watch(self, folder: str) -> Watch:
        return watch_folder(self.root / folder)

    def close(self) -> None:
        self._sync_now()
        self._folders.forget()
        self._told_late()

    def _place(self, name: str) -> str:
        """A path as text: commits ask so often that a `Path` would be felt."""
        return f"{self.location}/{name}"

    def sync_file(self, path: Path) -> None:
        """Have the bytes of a file on the medium, as far as the option says."""
        if self._fsync == "always":
            self._sync(path)
        elif self._fsync == "interval" and TEMPORARY.fullmatch(path.name) is None:
            self._defer(path)

    def sync_folder(self, path: Path) -> None:
        """Have the names in a folder on the medium, as far as the option says."""
        if self._fsync == "always":
            self._sync(path)
        elif self._fsync == "interval":
            self._defer(path)

    def _defer(self, path: Path) -> None:
        """Sync it within the interval, behind all that was deferred before."""
        self._told_late()
        with self._lock:
            self._unsynced.pop(path, None)
            self._unsynced[path] = None
            if self._timer is None:
                self._timer = threading.Timer(self._interval, self._sync_now)
                self._timer.daemon = True
                self._timer.start()

    def _sync_now(self) -> None:
        with self._lock:
            pending, self._unsynced = self._unsynced, {}
            timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        for path in pending:
            try:
                self._sync(path)
            except FileNotFoundError:  # removed since
                continue
            except OSError as error:
                self._failure = failed(path, error)

    def _told_late(self) -> None:
        """Raise what went wrong since, when nobody waited for it."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _sync(self, path: Path) -> None:
        """The one place that asks the medium."""
        self._folders.sync(str(path))

    def _link(self, temporary: Path, final: Path) -> bool:
        """Publish what was written.

        Not by rename, which overwrites; not by an exclusive create, which a crash may
        leave half written under the final name.
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
                "several writers need exclusive publication: use another file system, "
                "or an object store"
            )
            raise StorageFailed(msg, remedy=remedy) from error
        self._settle_link(final)
        return True

    def _settle_link(self, final: Path) -> None:
        """Have what was published as safe as the option says."""
        try:
            if self._fsync == "interval":
                self.sync_file(final)
            self.sync_folder(final.parent)
        except OSError as error:
            msg = f"{final}: it was published, and may not survive a power cut: {error}"
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
    """An Arrow file of the bytes of a descriptor, which the caller closes.

    Args:
        fd: The descriptor.
        size: Bytes.
        mapped: Whether longer files may be mapped. Where somebody cuts a mapped file,
            its reader is killed; where somebody writes it, checked values change.
    """
    if size <= _SMALL:
        return pa.BufferReader(os.read(fd, size))
    if mapped:
        return pa.BufferReader(
            pa.py_buffer(mmap.mmap(fd, size, access=mmap.ACCESS_READ))
        )
    return pa.PythonFile(_Reads(os.dup(fd), size), mode="r")


@contextlib.contextmanager
def _told(path: Path | str) -> Iterator[None]:
    """Failures of the file system, in our words; a missing file stays what it is."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        told = failed(path, error)
        raise told from (None if told is error else error)
