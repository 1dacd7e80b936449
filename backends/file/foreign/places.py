"""Where the files of a folder are: a base, and folders of this machine."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from streamfactory.arrowlog.disk.folders import Folders, Modes
from streamfactory.backends.file.foreign.medium import (
    LocalMedium,
    Medium,
    Stamp,
    stamp_of,
    translate_errors,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


class Found(NamedTuple):
    """A name in a folder."""

    stamp: Stamp
    is_folder: bool = False


class Place(ABC):
    """The files of one folder, by name. One thread at a time."""

    renames: ClassVar[bool]
    """Whether a file can get another name, and is still the same file."""

    @abstractmethod
    def path(self, name: str) -> str:
        """The whole path, for messages."""

    @abstractmethod
    def names(self) -> Iterator[tuple[str, Found | None]]:
        """The names in the folder, in any order, with what the listing has of them.

        Raises:
            StreamError: It cannot be listed.
        """

    @abstractmethod
    def look(self, name: str) -> Found:
        """What has a name now.

        Raises:
            TopicNotFound: permanent; nothing has.
            FormatRefused: permanent; neither a regular file nor a folder.
        """

    @abstractmethod
    def is_unchanged(self, name: str, stamp: Stamp) -> bool:
        """Whether an open file is still the one that its name has.

        Raises:
            TopicNotFound: permanent; it was removed.
        """

    @abstractmethod
    def open(self, name: str, stamp: Stamp) -> Medium:
        """Open a file.

        Args:
            name: Its name.
            stamp: As `look` or `names` returned it.

        Raises:
            TopicNotFound: permanent; it was removed.
            FormatRefused: permanent; no regular file.
        """

    @abstractmethod
    def close(self) -> None:
        """Release resources. May be called twice."""


class LocalPlace(Place):
    """A folder of this machine.

    Args:
        root: The folder.
        links: Whether symbolic links are followed below it.
    """

    renames = True

    def __init__(self, root: str, *, links: bool) -> None:
        self._given = root
        self._root = os.path.abspath(root)  # noqa: PTH100 - a link stays
        self._folders = Folders(Path(self._root), Modes(), foreign=True, links=links)

    def path(self, name: str) -> str:
        return os.path.join(self._root, name)  # noqa: PTH118 - thousands

    def names(self) -> Iterator[tuple[str, Found | None]]:
        with translate_errors(self._given), os.scandir(self._given) as entries:
            for entry in entries:
                yield entry.name, None

    def look(self, name: str) -> Found:
        path = self.path(name)
        with translate_errors(path):
            status = self._folders.entry(path)
        return Found(Stamp.of(status), (status.st_mode & 0o170000) == 0o040000)

    def is_unchanged(self, name: str, stamp: Stamp) -> bool:
        return stamp_of(self.path(name), self._folders) == stamp

    def open(self, name: str, stamp: Stamp) -> Medium:
        path = self.path(name)
        with translate_errors(path):
            return LocalMedium(path, self._folders)

    def close(self) -> None:
        self._folders.forget()
