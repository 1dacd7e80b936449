"""The files of a table: a folder, or a prefix of an object store."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, final
from urllib.parse import unquote, urlsplit

from pyarrow import fs

from streamfactory.spi import FormatRefused, StorageFailed, StreamError
from streamfactory.tables.errors import store_failure
from streamfactory.tables.stores import file_system

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from streamfactory.spi import StreamConfig


@final
class TableFiles:
    """Reads the files below one folder. Thread-safe.

    Every method raises, where the storage fails, what `store_failure` makes of it.

    Args:
        filesystem: Rooted at the folder.
        location: The folder, for messages.
    """

    def __init__(self, filesystem: fs.FileSystem, location: str) -> None:
        self._filesystem = filesystem
        self.location = location

    @classmethod
    def of(cls, config: StreamConfig) -> TableFiles:
        """The files of ``path``, as the options ``storage.*`` configure it.

        Raises:
            Unsupported: misuse; see `file_system`.
        """
        location: str = config["path"]
        parts = urlsplit(location) if "://" in location else None
        folder = location if parts is None else f"{parts.netloc}{parts.path}"
        whole = file_system(config)
        return cls(fs.SubTreeFileSystem(folder.rstrip("/") or "/", whole), location)

    def open(self, path: str) -> pa.NativeFile:
        """Open a file for reading at random.

        Raises:
            FileNotFoundError: It does not exist.
        """
        with self._translated(path):
            return self._filesystem.open_input_file(path)

    def read(self, path: str, most: int) -> bytes:
        """A whole file.

        Raises:
            FileNotFoundError: It does not exist.
            FormatRefused: permanent; it is longer than ``most`` bytes.
        """
        with self._translated(path), self._filesystem.open_input_file(path) as file:
            size = file.size()
            check_size(path, size, most)
            content: bytes = file.read(size)
        return content

    def exists(self, path: str) -> bool:
        """Whether a file or folder exists."""
        with self._translated(path):
            info = self._filesystem.get_file_info(path)
        found: bool = info.type is not fs.FileType.NotFound
        return found

    def stamp(self, path: str) -> tuple[int, int] | None:
        """Size and time of a file, which another one there would not have.

        None where there is none.
        """
        with self._translated(path):
            info = self._filesystem.get_file_info(path)
        if not info.is_file:
            return None
        return info.size, info.mtime_ns or 0

    def sizes(self, folder: str) -> dict[str, int]:
        """Files of a folder, with their bytes; none where it does not exist."""
        found = self._listed(folder)
        return {info.base_name: info.size for info in found if info.is_file}

    def entries(self, folder: str) -> tuple[list[str], list[str]]:
        """Names of the files, and of the folders, of a folder, each sorted.

        Both lists are empty where the folder does not exist.
        """
        found = self._listed(folder)
        names = sorted(info.base_name for info in found if info.is_file)
        folders = sorted(
            info.base_name for info in found if info.type is fs.FileType.Directory
        )
        return names, folders

    def _listed(self, folder: str) -> list[fs.FileInfo]:
        selector = fs.FileSelector(folder, allow_not_found=True)
        with self._translated(folder):
            found: list[fs.FileInfo] = self._filesystem.get_file_info(selector)
        return found

    @contextmanager
    def _translated(self, path: str) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, StreamError):
            raise
        except OSError as error:
            place = f"{self.location}/{path}".rstrip("/")
            found = store_failure(error, place)
            raise found or StorageFailed(f"{place!r}: {error}") from error


def check_size(path: str, size: int, most: int) -> None:
    """Refuse a file of a log that is too long to be read as a whole.

    Raises:
        FormatRefused: permanent.
    """
    if size > most:
        what = f"{path!r} of the table has {size} bytes, more than {most}"
        raise FormatRefused(what, remedy="raise log.max.bytes to read it")


def relative_path(text: str, location: str) -> str:
    """The path of a data file, as the log of a table states it.

    Args:
        text: URL-encoded, relative to the table.
        location: Of the table.

    Raises:
        FormatRefused: permanent; it leads out of the table's folder.
    """
    path = unquote(text)
    parts = path.split("/")
    if (
        not path
        or "\0" in path
        or "://" in path
        or path.startswith("/")
        or any(part in ("", ".", "..") for part in parts)
    ):
        what = f"the table at {location!r} has a file {text[:200]!r}, which is outside "
        what += "of the table"
        raise FormatRefused(
            what, remedy="tables that share files (shallow clones) are not supported"
        )
    return path


def path_below(table: str, path: str) -> str:
    """The path of a file below the table, which its metadata names by location.

    Args:
        table: Location of the table.
        path: Absolute, not encoded.

    Raises:
        FormatRefused: permanent; it lies outside of the table.
    """
    root, found = _plain(table), _plain(path)
    below = found.removeprefix(root + "/")
    if below == found:
        below = ""
    # What is written is the name: `relative_path` decodes.
    return relative_path(below.replace("%", "%25") or f"//{path}", table)


def _plain(location: str) -> str:
    text = location.removeprefix("file://").rstrip("/")
    return text.replace("s3a://", "s3://", 1)
