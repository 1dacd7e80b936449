"""Staging of rows until their commit: in commit messages, or in Arrow files."""

from __future__ import annotations

import logging
import os
import re
import shutil
import tempfile
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa
from pyarrow import fs

from streamfactory.backends.kafka.parcels import (
    Parcel,
    encoded,
    read_parcels,
    write_parcels,
)
from streamfactory.spi import CorruptData, MisuseError, StorageFailed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from streamfactory.spi import StreamConfig

_logger = logging.getLogger("streamfactory")

_NAME: Final = re.compile(r"[0-9a-f-]{1,64}\.arrow")
_BATCH: Final = 8 * 1024**2
"""Bytes of rows per write to a file."""


@dataclass(frozen=True, slots=True)
class Staged:
    """The staged rows of one attempt: the payload of its commit message."""

    rows: int
    size: int
    """Bytes of the rows."""
    file: str | None = None
    """Name of the file; None if the rows are inline."""
    inline: bytes = b""

    def to_payload(self) -> dict[str, Any]:
        """As plain values."""
        where = {"inline": self.inline} if self.file is None else {"file": self.file}
        return {"rows": self.rows, "size": self.size, **where}

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any]) -> Self:
        """Parse the payload of a commit message.

        Raises:
            CorruptData: data_loss; not a result of `to_payload`.
        """
        rows, size = payload.get("rows"), payload.get("size")
        file, inline = payload.get("file"), payload.get("inline", b"")
        if file is not None and (
            type(file) is not str or _NAME.fullmatch(file) is None
        ):
            msg = f"a commit message has an invalid name of a staged file: {file!r}"
            raise CorruptData(msg)
        if type(rows) is not int or type(size) is not int or type(inline) is not bytes:
            msg = "a commit message does not describe staged rows"
            raise CorruptData(msg)
        return cls(rows, size, file, inline)


class Stage:
    """The rows of one attempt, in memory until they exceed the inline limit.

    Args:
        area: Creates files.
        attempt: Used as the file name.
    """

    def __init__(self, area: StagingArea, attempt: str) -> None:
        self._area = area
        self._name = f"{attempt}.arrow"
        self._waiting: list[Parcel] = []
        self._waiting_size = 0
        self._file: Any = None
        self._writer: Any = None
        self._rows = 0
        self._size = 0

    def append(self, topic: str, partition: int, rows: pa.RecordBatch) -> None:
        """Add messages for one partition."""
        size = rows.nbytes
        self._waiting.append((topic, partition, rows))
        self._waiting_size += size
        self._rows += rows.num_rows
        self._size += size
        limit = self._area.inline_bytes if self._file is None else _BATCH
        if self._waiting_size > limit:
            self._spill()

    def seal(self) -> Staged:
        """Finish; the committer can read the rows afterwards."""
        if self._file is None:
            return Staged(self._rows, self._size, inline=encoded(self._waiting))
        self._spill()
        self._end()
        return Staged(self._rows, self._size, self._name)

    def discard(self) -> None:
        """Drop all rows and remove the file."""
        self._waiting = []
        begun = self._file is not None
        self.close()
        if begun:
            self._area.remove([self._name])

    def close(self) -> None:
        """Close the file. Rows that were not sealed are lost."""
        file, self._file, self._writer = self._file, None, None
        if file is not None:
            file.close()

    def _spill(self) -> None:
        waiting, self._waiting, self._waiting_size = self._waiting, [], 0
        with self._area.failing(self._name):
            if self._file is None:
                self._file = self._area.create(self._name)
                self._writer = pa.ipc.new_stream(self._file, waiting[0][2].schema)
            write_parcels(self._writer, waiting)

    def _end(self) -> None:
        with self._area.failing(self._name):
            self._writer.close()
            self.close()


class StagingArea:
    """The folder of a topic under ``staging.location``, or a temporary one.

    A temporary folder is removed by the object and the process that created it.
    """

    def __init__(self, config: StreamConfig) -> None:
        self.inline_bytes: int = config["staging.inline.bytes"]
        self._config = config
        self._location: str | None = config.get("staging.location")
        self._lock = threading.Lock()
        self._place: tuple[fs.FileSystem, str] | None = None
        self._temporary: tuple[int, str] | None = None

    def create(self, name: str) -> Any:
        """Begin a file."""
        system, folder = self._open()
        return system.open_output_stream(f"{folder}/{name}")

    def read(self, staged: Staged) -> Iterator[Parcel]:
        """The rows of one attempt.

        Raises:
            MisuseError: misuse; the file is not accessible to this process.
            CorruptData: data_loss; the content of the file is not what was staged.
        """
        rows = 0
        for parcel in self._parcels(staged):
            rows += parcel[2].num_rows
            yield parcel
        if rows != staged.rows:
            msg = (
                f"the staged file {staged.file!r} has {rows} rows instead of "
                f"{staged.rows}"
            )
            raise CorruptData(msg, remedy="abort the epoch and write it again")

    def remove(self, names: Sequence[str]) -> None:
        """Remove files; missing ones are ignored."""
        if not names or (self._location is None and self._place is None):
            return  # temporary files of other processes are not accessible
        system, folder = self._open()
        for name in names:
            try:
                system.delete_file(f"{folder}/{name}")
            except FileNotFoundError:
                continue
            except OSError as error:
                _logger.warning("staged file %s/%s: %s", folder, name, error)

    def sweep(self) -> None:
        """Remove files older than ``staging.age.millis``, which were not committed."""
        if self._location is None:
            return
        oldest = time.time() - self._config["staging.age.millis"] / 1000
        system, folder = self._open()
        try:
            found = system.get_file_info(fs.FileSelector(folder))
        except OSError as error:
            _logger.warning("staged files in %s: %s", folder, error)
            return
        self.remove(
            [
                info.base_name
                for info in found
                if _NAME.fullmatch(info.base_name)
                and info.mtime is not None
                and info.mtime.timestamp() < oldest
            ]
        )

    def failing(self, name: str) -> _Failing:
        """A context that translates errors and names the file."""
        return _Failing(self._location or "the temporary folder", name)

    def close(self) -> None:
        """Remove the temporary folder."""
        temporary, self._temporary, self._place = self._temporary, None, None
        if temporary is not None and temporary[0] == os.getpid():
            shutil.rmtree(temporary[1], ignore_errors=True)

    def _parcels(self, staged: Staged) -> Iterator[Parcel]:
        if staged.file is None:
            yield from read_parcels(pa.BufferReader(staged.inline))
            return
        if self._location is None and self._place is None:
            msg = (
                f"the staged file {staged.file} is in a temporary folder of the "
                "process that wrote it"
            )
            remedy = "set stream.kafka.staging.location to a shared folder"
            raise MisuseError(msg, remedy=remedy)
        system, folder = self._open()
        try:
            with (
                self.failing(staged.file),
                system.open_input_file(f"{folder}/{staged.file}") as file,
            ):
                yield from read_parcels(file)
        except CorruptData as error:
            msg = f"the staged file {folder}/{staged.file} cannot be read: {error.what}"
            remedy = "abort the epoch and write it again"
            raise CorruptData(msg, remedy=remedy) from error

    def _open(self) -> tuple[fs.FileSystem, str]:
        with self._lock:
            if self._place is None:
                self._place = self._made()
            return self._place

    def _made(self) -> tuple[fs.FileSystem, str]:
        if self._location is None:
            folder = tempfile.mkdtemp(prefix="streamfactory-")
            self._temporary = (os.getpid(), folder)
            return fs.LocalFileSystem(), folder
        with self.failing(self._config.topic):
            system, path = fs.FileSystem.from_uri(self._location)
            folder = f"{path.rstrip('/')}/{self._config.topic}"
            system.create_dir(folder, recursive=True)
            return system, folder


class _Failing:
    """Translates errors of a file system."""

    def __init__(self, location: str, name: str) -> None:
        self._what = f"staging in {location}: {name}"

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        missing = isinstance(error, FileNotFoundError)
        if isinstance(error, OSError) and not isinstance(error, pa.ArrowInvalid):
            remedy = (
                "set stream.kafka.staging.location to a folder that all processes can "
                "access"
                if missing
                else "check free space and permissions of stream.kafka.staging.location"
            )
            msg = f"{self._what}: {error}"
            raise StorageFailed(msg, remedy=remedy) from error
