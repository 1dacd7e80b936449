"""The files of a table: a folder, or a prefix of an object store."""

from __future__ import annotations

import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, final
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyarrow import fs

from streamfactory.spi import FormatRefused, StorageFailed, StreamError, Unsupported
from streamfactory.tables.errors import store_failure
from streamfactory.tables.storage import LocalFolder, ObjectFolder
from streamfactory.tables.stores import file_system

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfactory.spi import StreamConfig
    from streamfactory.tables.storage import Info, Storage


_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


@final
class TableFiles:
    """Reads the files below one folder. Thread-safe.

    Every method raises, where the storage fails, what `store_failure` makes of it.

    Args:
        storage: Has the files.
        location: The folder, for messages.
    """

    def __init__(self, storage: Storage, location: str) -> None:
        self._storage = storage
        self.location = location

    @classmethod
    def of(cls, config: StreamConfig, location: str | None = None) -> TableFiles:
        """The files of a table, as the options ``storage.*`` configure it.

        Args:
            config: Of the stream.
            location: Folder or URL; None means ``path``.

        Raises:
            Unsupported: misuse; see `file_system`.
        """
        location = config["path"] if location is None else location
        if "://" not in location:
            return cls(LocalFolder(location, links=config["follow.links"]), location)
        parts = urlsplit(location)
        folder = f"{parts.netloc}{parts.path}".rstrip("/")
        found = fs.SubTreeFileSystem(folder or "/", file_system(config, parts.scheme))
        return cls(ObjectFolder(found), location)

    def open(self, path: str) -> pa.NativeFile:
        """Open a file for reading at random.

        Raises:
            FileNotFoundError: It does not exist.
            FormatRefused: permanent; it is no regular file, or reached by a link.
        """
        with self._translated(path):
            return self._storage.open(path)

    def local(self, path: str) -> str:
        """The absolute path of a file, for other programs of this machine.

        Raises:
            Unsupported: misuse; it is in an object store.
        """
        if "://" in self.location:
            what = "files are read from a folder that all processes reach by the same "
            what += f"path, not from {self.location}"
            raise Unsupported(what)
        return str(Path(self.location, path).absolute())

    def read(self, path: str, most: int) -> bytes:
        """A whole file.

        Raises:
            FileNotFoundError: It does not exist.
            FormatRefused: permanent; it is longer than ``most`` bytes, or see `open`.
        """
        with self._translated(path), self._storage.open(path) as file:
            size = file.size()
            check_size(path, size, most)
            content: bytes = file.read(size)
        return content

    def exists(self, path: str) -> bool:
        """Whether a file or folder exists."""
        with self._translated(path):
            return self._storage.info(path) is not None

    def stamp(self, path: str) -> tuple[int, int] | None:
        """Size and time of a file, which another one there would not have.

        None where there is none.
        """
        with self._translated(path):
            info = self._storage.info(path)
        return None if info is None or info.folder else (info.size, info.mtime_ns)

    def sizes(self, folder: str) -> dict[str, int]:
        """Files of a folder, with their bytes; none where it does not exist."""
        found = self._listed(folder)
        return {info.name: info.size for info in found if not info.folder}

    def entries(self, folder: str) -> tuple[list[str], list[str]]:
        """Names of the files, and of the folders, of a folder, each sorted.

        Both lists are empty where the folder does not exist.
        """
        found = self._listed(folder)
        names = sorted(info.name for info in found if not info.folder)
        return names, sorted(info.name for info in found if info.folder)

    def _listed(self, folder: str) -> list[Info]:
        with self._translated(folder):
            return self._storage.listed(folder)

    @contextmanager
    def _translated(self, path: str) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, StreamError):
            raise
        except pa.ArrowInvalid as error:  # a path that no file system has
            what = f"the table has a file {path[:200]!r}: {error}"
            raise FormatRefused(what) from error
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
        or _SCHEME.match(path)
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
    root, found = plain_location(table), plain_location(path)
    below = found.removeprefix(root + "/")
    if below == found:
        below = ""
    # What is written is the name: `relative_path` decodes.
    return relative_path(below.replace("%", "%25") or f"//{path}", table)


def plain_location(location: str) -> str:
    """A location as `TableFiles.of` takes it: local folders have no scheme."""
    text = location.removeprefix("file://").rstrip("/")
    return text.replace("s3a://", "s3://", 1)
