"""Checkpoint folders, local or on a file system given by URL."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from streamfactory.spi import CheckpointFailed, PositionRefused, Unsupported
from streamfactory.wiring.core.durable import make_folder, replace_file, sync_folder

if TYPE_CHECKING:
    from datetime import datetime

MAX_BYTES: Final = 64 << 20
"""Maximum size of a file. Ten thousand partitions need less than 1 MiB."""

_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")
_PASSWORD: Final = re.compile("[^/]*//[^/]*@")
_ALIASES: Final = {"s3a": "s3", "s3n": "s3"}
"""Hadoop's URL schemes and their names in pyarrow."""
_WHOLE: Final = ("s3", "gcs", "abfs")
"""Object stores: an object is visible completely or not at all."""


@final
@dataclass(frozen=True, slots=True)
class Place:
    """One folder, which need not exist. Keeps no resources open."""

    text: str
    """A path or URL, as Spark accepts it."""
    _fs: Any
    _path: str

    @classmethod
    def of(cls, text: str) -> Place:
        """The folder that a path or a URL names.

        Raises:
            PositionRefused: permanent; no such file system can be reached from here.
        """
        from pyarrow import fs

        match = _URL.match(text)
        if match is None:
            path = str(Path(text).absolute())
            return cls(path, fs.LocalFileSystem(), path)
        scheme, rest = match[1].lower(), text[match.end(1) :]
        if "?" in text or _PASSWORD.match(text):
            msg = f"a URL of {scheme} with options or a password in it is not taken"
            remedy = "give them by the environment, as AWS_ENDPOINT_URL and its like"
            raise PositionRefused(msg, remedy=remedy)
        rest = re.sub("^:/(?!/)", ":///", rest)  # Hadoop writes file:/folder
        try:
            found, path = fs.FileSystem.from_uri(_ALIASES.get(scheme, scheme) + rest)
        except (OSError, ValueError, ImportError) as error:
            msg = f"{text!r} cannot be accessed: {error}"
            remedy = "give a folder of this machine, or a URL that pyarrow can open"
            raise PositionRefused(msg, remedy=remedy) from error
        return cls(text.rstrip("/"), found, path.rstrip("/"))

    def child(self, name: str) -> Place:
        """A folder in this one."""
        return Place(f"{self.text}/{name}", self._fs, f"{self._path}/{name}")

    @property
    def local(self) -> Path | None:
        """The path, if it is on a local file system."""
        return Path(self._path) if self._fs.type_name == "local" else None

    def names(self) -> list[str] | None:
        """Names of the entries, sorted; None if the folder does not exist.

        Raises:
            PositionRefused: permanent; it cannot be listed.
        """
        from pyarrow import fs

        try:
            if self._fs.get_file_info(self._path).type != fs.FileType.Directory:
                return None
            listed = self._fs.get_file_info(fs.FileSelector(self._path))
        except OSError as error:
            raise self._refused(name="", error=error) from error
        return sorted(info.base_name for info in listed)

    def is_file(self, name: str) -> bool:
        """Whether the file exists."""
        from pyarrow import fs

        try:
            info = self._fs.get_file_info(f"{self._path}/{name}")
        except OSError as error:
            raise self._refused(name, error) from error
        return bool(info.type == fs.FileType.File)

    def read(self, name: str) -> bytes | None:
        """Content of a file; None if it does not exist.

        Raises:
            PositionRefused: permanent; it cannot be read, or is too long.
        """
        try:
            with self._fs.open_input_stream(f"{self._path}/{name}") as file:
                content: bytes = file.read(MAX_BYTES + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._refused(name, error) from error
        if len(content) > MAX_BYTES:
            msg = f"{self.text}/{name} is longer than {MAX_BYTES} bytes"
            raise PositionRefused(msg)
        return content

    def written(self, name: str) -> datetime | None:
        """Modification time of a file; None if unknown."""
        try:
            when: datetime | None = self._fs.get_file_info(f"{self._path}/{name}").mtime
        except OSError:
            return None
        return when

    def replace(self, name: str, content: bytes) -> None:
        """Write a file atomically and durably (rule P3).

        Raises:
            CheckpointFailed: permanent; the previous checkpoint remains valid.
            Unsupported: misuse; this file system cannot do that.
        """
        kind = self._fs.type_name
        path = f"{self._path}/{name}"
        try:
            if kind == "local":
                make_folder(Path(path).parent)
                replace_file(Path(path), content)
            elif kind in _WHOLE:
                with self._fs.open_output_stream(path) as file:
                    file.write(content)
            else:
                msg = f"{self.text}/{name}: a file on {kind} cannot be replaced whole"
                remedy = "keep the checkpoint in a folder, or in an object store"
                raise Unsupported(msg, remedy=remedy)
        except OSError as error:
            msg = f"{self.text}/{name} could not be saved: {_why(error)}"
            remedy = "save it again; the previous one remains valid"
            raise CheckpointFailed(msg, remedy=remedy) from error
        try:
            if kind == "local":
                sync_folder(Path(path).parent)
        except OSError as error:
            msg = f"{self.text}/{name} may not outlive a crash: {_why(error)}"
            raise CheckpointFailed(msg, remedy="run it again") from error

    def _refused(self, name: str, error: OSError) -> PositionRefused:
        path = f"{self.text}/{name}".rstrip("/")
        return PositionRefused(f"{path} cannot be read: {_why(error)}")


def _why(error: OSError) -> str:
    return error.strerror or str(error)
