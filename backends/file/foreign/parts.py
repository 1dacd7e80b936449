"""Where the parts of a manifest are: a base, and folders of this machine."""

from __future__ import annotations

import os
import time
import uuid
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from streamfactory.arrowlog.disk.folders import Folders, Modes
from streamfactory.backends.file.foreign.medium import Stamp
from streamfactory.spi import CorruptData, StorageFailed

if TYPE_CHECKING:
    from collections.abc import Hashable
    from pathlib import Path

MANIFEST: Final = ".streamfactory-manifest"
"""Name of the folder of the parts, beside the files."""
LONGEST_PART: Final = 64 << 20
"""Bytes that a part may have."""
WRITABLE: Final = "set `state.folder` to a writable folder"
"""Remedy where parts cannot be published."""
_STALE: Final = 3600.0
"""Seconds after which an unpublished part is removed as left by a crashed process."""


class Parts(ABC):
    """The parts of one manifest, by the number of files before them."""

    @abstractmethod
    def path(self, index: int) -> str:
        """The whole path of a part, for messages."""

    @abstractmethod
    def first(self) -> Hashable | None:
        """Identifies the first part; None where there is no manifest."""

    @abstractmethod
    def read(self, index: int) -> tuple[str, int] | None:
        """A part, and when it was written in nanoseconds; None where there is none.

        Raises:
            CorruptData: data_loss; it is too large, or not UTF-8.
            StreamError: It cannot be read.
        """

    @abstractmethod
    def publish(self, index: int, data: bytes) -> bool:
        """Publish a part, durably; False if another process published it first.

        Raises:
            StreamError: It cannot be written.
        """

    @abstractmethod
    def sync(self) -> None:
        """Make durable what `read` found."""

    @abstractmethod
    def close(self) -> None:
        """Release resources. May be called twice."""


class LocalParts(Parts):
    """Files of a folder, published by hard links.

    Args:
        folder: The folder; created by the first publisher.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._folders = Folders(folder.parent.absolute(), Modes(), foreign=True)
        self._prefix = f"{folder.absolute()}{os.sep}"
        self._swept = False

    def path(self, index: int) -> str:
        return f"{self._prefix}{part_name(index)}"

    def first(self) -> Hashable | None:
        try:
            return Stamp.of(os.stat(self.path(0)))  # noqa: PTH116 - at each fetch
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise self._failed(error) from error

    def read(self, index: int) -> tuple[str, int] | None:
        path = self.path(index)
        try:
            descriptor, status = self._folders.read(path)
            with open(descriptor, encoding="utf-8") as file:  # noqa: PTH123 - at each fetch
                if status.st_size > LONGEST_PART:
                    raise damaged_part(path, f"it has {status.st_size} bytes")
                return file.read(), status.st_mtime_ns
        except FileNotFoundError:
            return None
        except UnicodeDecodeError as error:
            raise damaged_part(path, "it is not UTF-8") from error
        except OSError as error:
            raise self._failed(error) from error

    def publish(self, index: int, data: bytes) -> bool:
        try:
            return self._link(self.path(index), data)
        except OSError as error:
            raise self._failed(error, done="written") from error

    def sync(self) -> None:
        for folder in (self._folder, self._folder.parent):
            with suppress(PermissionError):
                handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
                try:
                    os.fsync(handle)
                finally:
                    os.close(handle)

    def close(self) -> None:
        self._folders.forget()

    def _link(self, path: str, data: bytes) -> bool:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._sweep()
        temporary = self._folder / f".{uuid.uuid4().hex}.tmp"
        try:
            with temporary.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(temporary, path)
            except FileExistsError:
                return False
        finally:
            temporary.unlink(missing_ok=True)
        self.sync()
        return True

    def _sweep(self) -> None:
        """Remove, once, temporary files of crashed processes."""
        if self._swept:
            return
        self._swept = True
        for path in self._folder.glob(".*.tmp"):
            with suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > _STALE:
                    path.unlink()

    def _failed(self, error: OSError, done: str = "read") -> StorageFailed:
        reason = error.strerror or error
        msg = f"the manifest {str(self._folder)!r} cannot be {done}: {reason}"
        return StorageFailed(msg, remedy=WRITABLE)


def part_name(index: int) -> str:
    """Name of the part that has so many files before it."""
    return f"{index:020d}.jsonl"


def damaged_part(path: str, why: str) -> CorruptData:
    """The error for a part that is not as one is written."""
    msg = f"the manifest part {path!r} is corrupt: {why}"
    remedy = "restore it; if you delete the manifest, the folder becomes a new stream"
    return CorruptData(msg, remedy=remedy)
