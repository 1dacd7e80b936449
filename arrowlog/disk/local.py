"""Storage in a folder of this machine, or of any that shares a POSIX file system."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from streamfactory.arrowlog.disk.storage import NewBlob, Storage, Watch, failed
from streamfactory.arrowlog.disk.watching import watch_folder
from streamfactory.spi import StorageFailed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

_TEMPORARY: Final = ".tmp-"
_SMALL: Final = 64 << 10
"""Bytes of a file that is read sooner than mapped; nor does it hold a descriptor."""
_NO_LINKS: Final = frozenset(
    {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
)


class _NewFile(NewBlob):
    def __init__(self, storage: LocalStorage, path: Path) -> None:
        self._storage = storage
        self._path = path
        self.sink = pa.OSFile(str(path), "wb")

    def finish(self) -> int:
        with _told(self._path):
            self.sink.close()
            self._storage.sync_file(self._path)
            return self._path.stat().st_size

    def abandon(self) -> None:
        # A full disk fails the close as well: the file goes all the same.
        with contextlib.suppress(OSError, pa.ArrowException):
            self.sink.close()
        self._path.unlink(missing_ok=True)


class LocalStorage(Storage):
    """Files under a root, published by hard links.

    Args:
        root: The folder; made when something is first written.
        fsync: ``always``; ``interval``: ``interval`` seconds later, many at once, and
            when closed; ``never``.
        interval: Seconds.
    """

    def __init__(
        self, root: Path, *, fsync: str = "always", interval: float = 1.0
    ) -> None:
        self.root = root.absolute()
        self.location = str(self.root)
        self.lazy = fsync != "always"
        self._fsync = fsync
        self._interval = interval
        self._lock = threading.Lock()
        self._unsynced: dict[Path, None] = {}
        self._timer: threading.Timer | None = None
        self._failure: OSError | None = None

    def within(self, folder: str) -> Storage:
        return LocalStorage(
            self.root / folder, fsync=self._fsync, interval=self._interval
        )

    def read(self, name: str) -> bytes:
        place = self._place(name)
        with _told(place):
            # Python's own buffering costs more than the system calls.
            file = os.open(place, os.O_RDONLY)
            try:
                data = os.read(file, os.fstat(file).st_size + 1)
            finally:
                os.close(file)
            return data

    def publish(self, name: str, data: bytes) -> bool:
        final = self.root / name
        temporary = final.parent / f"{_TEMPORARY}{uuid.uuid4().hex}"
        with _told(final):
            if not final.parent.is_dir():
                self._make_folder(final.parent)
            try:
                _write(temporary, data)
                self.sync_file(temporary)
                return self._link(temporary, final)
            finally:
                with contextlib.suppress(OSError):
                    temporary.unlink()

    def size(self, name: str) -> int:
        place = self._place(name)
        with _told(place):
            return os.stat(place).st_size  # noqa: PTH116 - see `_place`

    def names(self, folder: str) -> Sequence[str]:
        with _told(self.root / folder):
            try:
                found = os.listdir(self.root / folder)  # noqa: PTH208 - names, not paths
            except (FileNotFoundError, NotADirectoryError):
                return []
            return [name for name in found if not name.startswith(_TEMPORARY)]

    def ages(self, folder: str) -> Mapping[str, float]:
        now, found = time.time(), {}
        with (
            contextlib.suppress(FileNotFoundError, NotADirectoryError),
            _told(self.root / folder),
            os.scandir(self.root / folder) as entries,
        ):
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    found[entry.name] = now - entry.stat().st_mtime
        return found

    def create(self, name: str) -> NewBlob:
        path = self.root / name
        with _told(path):
            try:
                return _NewFile(self, path)
            except FileNotFoundError:
                self._make_folder(path.parent)
                return _NewFile(self, path)

    def open(self, name: str) -> Any:
        if self.size(name) <= _SMALL:
            return pa.BufferReader(self.read(name))
        place = self._place(name)
        with _told(place):
            return pa.memory_map(place)

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
            place = self._place(name)
            with _told(place), contextlib.suppress(FileNotFoundError):
                os.unlink(place)  # noqa: PTH108 - see `_place`

    def remove_folder(self, folder: str) -> None:
        # Another process may be removing it, too.
        shutil.rmtree(self.root / folder, ignore_errors=True)

    def watch(self, folder: str) -> Watch:
        return watch_folder(self.root / folder)

    def close(self) -> None:
        self._sync_now()
        self._told_late()

    def _place(self, name: str) -> str:
        """A path as text: commits ask so often that a `Path` would be felt."""
        return f"{self.location}/{name}"

    def sync_file(self, path: Path) -> None:
        """Have the bytes of a file on the medium, as far as the option says."""
        if self._fsync == "always":
            self._sync(path)
        elif self._fsync == "interval" and not path.name.startswith(_TEMPORARY):
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
        file = os.open(path, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)

    def _link(self, temporary: Path, final: Path) -> bool:
        """Publish what was written.

        Not by rename, which overwrites; not by an exclusive create, which a crash may
        leave half written under the final name.
        """
        try:
            os.link(temporary, final)
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
        while not path.is_dir():
            missing.append(path)
            path = path.parent
        for folder in reversed(missing):
            with contextlib.suppress(FileExistsError):
                folder.mkdir()
            self.sync_folder(folder.parent)


def _write(path: Path, data: bytes) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(file, view) :]
    finally:
        os.close(file)


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
