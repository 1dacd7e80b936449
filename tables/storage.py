"""Access to the files below the folder of a table: local, or in an object store.

What is opened here, or by a client on behalf of a table, is a regular file below the
folder. A local folder is reached without following links, unless the option
``follow.links`` allows them.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, final

import pyarrow as pa
from pyarrow import fs

from streamfactory.arrowlog.disk.folders import Folders, Modes

if TYPE_CHECKING:
    from collections.abc import Iterator


class Info(NamedTuple):
    """A file or folder."""

    name: str
    folder: bool
    size: int
    mtime_ns: int
    """0 where it is not known."""


class Storage(Protocol):
    """Files below one folder, named by their paths from it. Thread-safe."""

    def open(self, path: str) -> pa.NativeFile:
        """Open a regular file for reading at random.

        Raises:
            FileNotFoundError: It does not exist.
            FormatRefused: permanent; it is no regular file, or reached by a link.
        """

    def info(self, path: str) -> Info | None:
        """What has a name; None where nothing has."""

    def listed(self, folder: str) -> list[Info]:
        """What a folder contains; nothing where it does not exist."""


@final
class LocalFolder:
    """A folder of this machine. See `Storage`.

    Args:
        root: The folder.
        links: Whether symbolic links are followed below it.
    """

    def __init__(self, root: str, *, links: bool) -> None:
        self._root = os.path.abspath(root)  # noqa: PTH100 - links stay
        self._folders = Folders(Path(self._root), Modes(), foreign=True, links=links)

    def open(self, path: str) -> pa.NativeFile:
        try:
            descriptor, _ = self._folders.read(self._at(path))
        except NotADirectoryError as error:
            raise FileNotFoundError(path) from error
        try:
            # By its descriptor: its name may be another file's by now.
            return pa.OSFile(f"/dev/fd/{descriptor}")
        finally:
            os.close(descriptor)

    def info(self, path: str) -> Info | None:
        with suppress(FileNotFoundError, NotADirectoryError):
            if path:
                return _info(path, self._folders.entry(self._at(path)))
            return _info(path, os.stat(self._root))  # noqa: PTH116 - as elsewhere here
        return None

    def listed(self, folder: str) -> list[Info]:
        with suppress(FileNotFoundError, NotADirectoryError):
            found: Iterator[tuple[str, os.stat_result]]
            found = self._folders.statuses(self._at(folder))
            return [_info(name, status) for name, status in found]
        return []

    def _at(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root


@final
class ObjectFolder:
    """A prefix of an object store. See `Storage`.

    Args:
        filesystem: Rooted at the prefix.
    """

    def __init__(self, filesystem: fs.FileSystem) -> None:
        self._filesystem = filesystem

    def open(self, path: str) -> pa.NativeFile:
        return self._filesystem.open_input_file(path)

    def info(self, path: str) -> Info | None:
        found = self._filesystem.get_file_info(path)
        return None if found.type is fs.FileType.NotFound else _object_info(found)

    def listed(self, folder: str) -> list[Info]:
        selector = fs.FileSelector(folder, allow_not_found=True)
        return [*map(_object_info, self._filesystem.get_file_info(selector))]


def _info(name: str, status: os.stat_result) -> Info:
    # What is neither a file nor a folder is listed as a file: to open it is refused.
    folder = stat.S_ISDIR(status.st_mode)
    return Info(name, folder, status.st_size, status.st_mtime_ns)


def _object_info(found: fs.FileInfo) -> Info:
    folder = found.type is fs.FileType.Directory
    return Info(found.base_name, folder, found.size or 0, found.mtime_ns or 0)
