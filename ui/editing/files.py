"""The files of definitions that the pages change: read, compared, replaced atomically.

A name that a client sends is compared with the names in the folder. A new file has a
name that `Folder.file_name` made.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from streamfactory.spi import ConfigError, MisuseError, UnknownStream
from streamfactory.ui.shown import Changed
from streamfactory.wiring.config.files import name_problem
from streamfactory.wiring.core.durable import (
    create_file,
    make_folder,
    replace_file,
    sync_folder,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SUFFIX: Final = ".toml"
MOST_BYTES: Final = 24 * 1024
"""Of a file that is changed in the pages: a form carries its text."""
_LONGEST_NAME: Final = 200
"""Bytes of a name; file systems allow 255 of a file's, temporary ones included."""
_UNFIT: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)")
"""Characters that a form would not send back as they are."""


@dataclass(frozen=True, slots=True)
class Content:
    """A file as it was read."""

    text: str
    """With line feeds as line ends."""
    digest: str
    """Of the bytes."""
    newline: str = "\n"
    mode: int = 0o644
    """Permissions."""


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder of definitions.

    Args:
        path: The folder.
        others: How the names of other files end, which have no definitions.
    """

    path: Path
    others: str | None = None

    def names(self) -> list[str]:
        """The files that can be changed here, sorted.

        Raises:
            ConfigError: config; the folder cannot be listed.
        """
        try:
            listed = [one.name for one in self.path.iterdir()]
        except FileNotFoundError:
            return []
        except OSError as error:
            msg = f"the folder {str(self.path)!r} cannot be read: {error.strerror}"
            raise ConfigError(msg) from error
        return sorted(
            name
            for name in listed
            if name.lower().endswith(SUFFIX)
            and not name.startswith(".")
            and not self._is_other(name)
        )

    def file_name(self, name: str) -> str:
        """The name of the file of a new definition.

        Raises:
            MisuseError: misuse; the name is none of a stream, or of a file.
        """
        what = name_problem(name)
        if what is None and name.startswith("."):
            what = "begins with a dot, as temporary files do"
        if what is None and len(name.encode("utf-8", "replace")) > _LONGEST_NAME:
            what = f"has more than {_LONGEST_NAME} bytes"
        file = f"{name}{SUFFIX}"
        if what is None and self._is_other(file):
            what = f"is that of a file *{self.others}, which defines nothing"
        if what is not None:
            msg = f"the name {name[:80]!r} {what}"
            raise MisuseError(msg, remedy="use letters, digits, - and _")
        return file

    def read_only(self) -> str | None:
        """Why no file can be changed; None if that is possible."""
        place = self.path
        while not place.exists() and place != place.parent:
            place = place.parent
        if os.access(place, os.W_OK | os.X_OK):
            return None
        return f"{str(place)!r} cannot be written by the process that serves the pages"

    def read(self, name: str) -> Content:
        """Read a file.

        Raises:
            UnknownStream: config; there is none with this name.
            MisuseError: misuse; it is a link, too large, or not plain text.
            ConfigError: config; it cannot be read.
        """
        if name not in self.names():
            msg = f"no file {name[:80]!r} is in {str(self.path)!r}"
            raise UnknownStream(msg, remedy="the page of the editor lists all of them")
        try:
            content, mode = _read(self.path / name)
        except OSError as error:
            if error.errno == errno.ELOOP:
                msg = f"the file {name!r} is a link"
                remedy = "change the file that it leads to"
                raise MisuseError(msg, remedy=remedy) from error
            msg = f"the file {name!r} cannot be read: {error.strerror}"
            raise ConfigError(msg) from error
        if len(content) > MOST_BYTES:
            msg = f"the file {name!r} has more than {MOST_BYTES // 1024} KiB"
            raise MisuseError(msg, remedy="change it with an editor of files")
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError:
            text = "\0"
        if _UNFIT.search(text):
            msg = f"the file {name!r} is not UTF-8 text without control characters"
            raise MisuseError(msg, remedy="change it with an editor of files")
        newline = "\r\n" if "\r\n" in text else "\n"
        return Content(plain_lines(text), digest_of(content), newline, mode)

    def create(self, name: str, text: str) -> str:
        """Create a file with a name of `file_name`; returns its digest.

        Raises:
            Changed: config; there is one of that name.
            ConfigError: config; it cannot be written.
        """
        with self._written(name):
            make_folder(self.path)
            create_file(self.path / name, text.encode())
            sync_folder(self.path)
        return digest_of(text.encode())

    def replace(self, name: str, text: str, digest: str) -> str:
        """Replace the text of a file; returns its new digest.

        Line ends and permissions are kept.

        Raises:
            Changed: config; the file has another digest.
            ConfigError: config; it cannot be written.
        """
        found = self.expect(name, digest)
        content = text.replace("\n", found.newline).encode()
        with self._written(name):
            replace_file(
                self.path / name, content, self._guard(name, digest), mode=found.mode
            )
            sync_folder(self.path)
        return digest_of(content)

    def rename(self, old: str, new: str, text: str, digest: str) -> str:
        """Replace a file by one of another name; returns its digest.

        Line ends and permissions are kept.

        Raises:
            Changed: config; the file has another digest, or there is one of the new
                name. Then both are as they were.
            ConfigError: config; it cannot be written.
        """
        found = self.expect(old, digest)
        content = text.replace("\n", found.newline).encode()
        # Written first: a crash leaves two definitions of two names, and loses none.
        with self._written(new):
            create_file(self.path / new, content, mode=found.mode)
            sync_folder(self.path)
        try:
            self.delete(old, digest)
        except ConfigError:
            self.delete(new, digest_of(content))
            raise
        return digest_of(content)

    def delete(self, name: str, digest: str) -> None:
        """Delete a file.

        Raises:
            Changed: config; the file has another digest.
            ConfigError: config; it cannot be deleted.
        """
        self.expect(name, digest)
        with self._written(name):
            (self.path / name).unlink()
            sync_folder(self.path)

    def expect(self, name: str, digest: str) -> Content:
        """The content of a file that must not have changed.

        Raises:
            Changed: config; it was changed or deleted.
        """
        try:
            found = self.read(name)
        except UnknownStream as error:
            msg = f"the file {name!r} was deleted meanwhile"
            raise Changed(msg, remedy="go back, and look again") from error
        if found.digest != digest:
            msg = f"the file {name!r} was changed meanwhile"
            raise Changed(msg, remedy="go back, and look again")
        return found

    def _is_other(self, name: str) -> bool:
        return self.others is not None and name.lower().endswith(self.others)

    @contextmanager
    def _guard(self, name: str, digest: str) -> Iterator[None]:
        self.expect(name, digest)
        yield

    @contextmanager
    def _written(self, name: str) -> Iterator[None]:
        try:
            yield
        except FileExistsError as error:
            msg = f"a file {name!r} is in {str(self.path)!r} already"
            raise Changed(msg, remedy="choose another name") from error
        except OSError as error:
            msg = f"{str(self.path / name)!r} cannot be written: {error.strerror}"
            remedy = "let the process that serves the pages write this folder"
            raise ConfigError(msg, remedy=remedy) from error


def check_size(text: str) -> None:
    """Refuse a text that is larger than a file that is edited.

    Raises:
        MisuseError: misuse; it is.
    """
    if len(text.encode("utf-8", "replace")) > MOST_BYTES:
        msg = f"the text has more than {MOST_BYTES // 1024} KiB"
        raise MisuseError(msg, remedy="change the file with an editor of files")


def plain_lines(text: str) -> str:
    """A text with line feeds as line ends, as files have it: forms send CRLF."""
    return text.replace("\r\n", "\n")


def digest_of(content: bytes) -> str:
    """The digest of a file's bytes."""
    return hashlib.sha256(content).hexdigest()


def _read(path: Path) -> tuple[bytes, int]:
    # Neither a link, nor a pipe that blocks: the folder may be another's to write.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        return file.read(MOST_BYTES + 1), stat.S_IMODE(status.st_mode)
