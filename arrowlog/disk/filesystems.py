"""Storage in file systems of Arrow or fsspec: many readers, a single writer.

These file systems have no exclusive creation of files. Topics can be read by all, but
written only with the option that declares a single writer.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyarrow import fs

from streamfactory.arrowlog.disk import forks
from streamfactory.arrowlog.disk.names import TEMPORARY, new_temporary
from streamfactory.arrowlog.disk.storage import (
    LONGEST_READ,
    NewBlob,
    Opened,
    Storage,
    Watch,
    too_long,
)
from streamfactory.arrowlog.disk.watching import PollingWatch
from streamfactory.spi import NotInstalled, StorageFailed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_BY_ARROW: Final = frozenset({"hdfs", "viewfs"})

_publishing: Final = forks.Lock()
"""Serialises the publications of this process."""


class FileSystemStorage(Storage):
    """Files below a folder of a file system.

    Args:
        system: Arrow's.
        root: The folder, as the file system writes it.
        location: The folder's URL.
        single_writer: Whether this process, and no other, writes there.
    """

    def __init__(
        self,
        system: fs.FileSystem,
        root: str,
        location: str,
        *,
        single_writer: bool = False,
    ) -> None:
        self.location = location.rstrip("/")
        self._system = system
        self._root = root.rstrip("/")
        self._single_writer = single_writer

    @classmethod
    def of(cls, url: str, *, single_writer: bool = False) -> FileSystemStorage:
        """The storage of a URL.

        Raises:
            NotInstalled: plugin; no installed package supports the scheme.
            StorageFailed: permanent; the file system cannot be reached.
        """
        scheme = url.partition("://")[0].lower()
        try:
            if scheme in _BY_ARROW:
                system, root = fs.FileSystem.from_uri(url)
            else:
                system, root = _by_fsspec(url, scheme)
        except (OSError, pa.ArrowException, ValueError) as error:
            msg = f"{url}: {error}"
            raise StorageFailed(msg) from error
        return cls(system, root, url, single_writer=single_writer)

    def within(self, folder: str) -> Storage:
        return FileSystemStorage(
            self._system,
            f"{self._root}/{folder}",
            f"{self.location}/{folder}",
            single_writer=self._single_writer,
        )

    def read(self, name: str, longest: int = LONGEST_READ) -> bytes:
        with (
            self._translated(name),
            self._system.open_input_stream(self._path(name)) as file,
        ):
            data: bytes = file.read(longest + 1)
        if len(data) > longest:
            raise too_long(self._place(name), self.size(name), longest)
        return data

    def publish(self, name: str, data: bytes) -> bool:
        if not self._single_writer:
            msg = (
                f"{self.location}: the file system does not support exclusive creation"
            )
            remedy = (
                "write to a folder or an object store, or set single.writer=true and "
                "let one process write"
            )
            raise StorageFailed(msg, remedy=remedy)
        path = self._path(name)
        folder = path.rpartition("/")[0]
        temporary = f"{folder}/{new_temporary()}"
        with self._translated(name), _publishing:
            if self._system.get_file_info(path).type != fs.FileType.NotFound:
                return False
            self._system.create_dir(folder, recursive=True)
            try:
                with self._system.open_output_stream(temporary) as file:
                    file.write(data)
                self._system.move(temporary, path)
            except BaseException:
                with contextlib.suppress(OSError, pa.ArrowException):
                    self._system.delete_file(temporary)
                raise
            return True

    def size(self, name: str) -> int:
        with self._translated(name):
            info = self._system.get_file_info(self._path(name))
            if info.type != fs.FileType.File:
                raise FileNotFoundError(self._place(name))
            return int(info.size)

    def written(self, name: str) -> float:
        with self._translated(name):
            info = self._system.get_file_info(self._path(name))
            if info.type != fs.FileType.File:
                raise FileNotFoundError(self._place(name))
            # A system that has no times does not contradict any.
            return time.time() * 1000 if info.mtime_ns is None else info.mtime_ns / 1e6

    def names(self, folder: str) -> Sequence[str]:
        found = [info.base_name for info in self._listed(folder)]
        return [name for name in found if TEMPORARY.fullmatch(name) is None]

    def ages(self, folder: str) -> Mapping[str, float]:
        now = time.time()
        return {
            info.base_name: now - info.mtime_ns / 1e9
            for info in self._listed(folder)
            if info.type == fs.FileType.File and info.mtime_ns is not None
        }

    def _listed(self, folder: str) -> list[fs.FileInfo]:
        chosen = fs.FileSelector(self._path(folder).rstrip("/"), allow_not_found=True)
        with self._translated(folder):
            found: list[fs.FileInfo] = self._system.get_file_info(chosen)
            return found

    def create(self, name: str) -> NewBlob:
        path = self._path(name)
        with self._translated(name):
            self._system.create_dir(path.rpartition("/")[0], recursive=True)
            sink = self._system.open_output_stream(path)
        return _NewFile(self, name, sink)

    def open(self, name: str) -> Opened:
        with self._translated(name):
            return Opened(self._system.open_input_file(self._path(name)), own=False)

    def settle(self, folder: str) -> None:
        """Do nothing: closed files are as durable as the file system allows."""

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            with contextlib.suppress(FileNotFoundError), self._translated(name):
                self._system.delete_file(self._path(name))

    def remove_folder(self, folder: str) -> None:
        with contextlib.suppress(FileNotFoundError), self._translated(folder):
            self._system.delete_dir(self._path(folder))

    def watch(self, folder: str) -> Watch:
        return PollingWatch(0.01, 1.0)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _place(self, name: str) -> str:
        return f"{self.location}/{name}"

    @contextlib.contextmanager
    def _translated(self, name: str) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, StorageFailed):
            raise
        except (OSError, pa.ArrowException) as error:
            msg = f"{self._place(name)}: {error}"
            raise StorageFailed(msg) from error


class _NewFile(NewBlob):
    def __init__(self, storage: FileSystemStorage, name: str, sink: Any) -> None:
        self._storage = storage
        self._name = name
        self.sink = sink

    def finish(self) -> int:
        with self._storage._translated(self._name):
            self.sink.close()
        return self._storage.size(self._name)

    def abandon(self) -> None:
        with contextlib.suppress(OSError, pa.ArrowException):
            self.sink.close()
        with contextlib.suppress(StorageFailed):
            self._storage.remove([self._name])


def _by_fsspec(url: str, scheme: str) -> tuple[fs.FileSystem, str]:
    try:
        from fsspec.core import url_to_fs  # type: ignore[import-untyped]

        found, root = url_to_fs(url)
    except ImportError as error:
        msg = f"{scheme}:// needs a package that is not installed: {error}"
        remedy = "run: pip install fsspec, and the package for that scheme"
        raise NotInstalled(msg, remedy=remedy) from error
    return fs.PyFileSystem(fs.FSSpecHandler(found)), root
