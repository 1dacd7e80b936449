"""The durable order of the files of a folder, which defines their offsets.

The manifest is a folder of parts. A part has a line of JSON per file. Its name is the
number of files in the parts before it, and it is published by hard-linking a file that
was written and synced before. So a part is visible completely or not at all, and if two
readers find files at the same time, one publishes and the other reads its part. Parts
never change.
"""

from __future__ import annotations

import base64
import json
import os
import time
import uuid
from bisect import bisect_right
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from streamfactory.arrowlog.disk.folders import Folders, Modes
from streamfactory.backends.file.foreign.medium import Stamp
from streamfactory.spi import (
    BatchValidator,
    CorruptData,
    FormatRefused,
    StorageFailed,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

VERSION: Final = 1
_MOST: Final = 64 << 20
"""Bytes that a part may have."""
_STALE: Final = 3600.0
"""Seconds after which an unpublished part is removed as left by a crashed process."""


class Entry(NamedTuple):
    """One listed file. Never changes."""

    name: str
    rows: int
    size: int
    form: str
    schema: str
    """Digest of its schema."""
    incarnation: str
    """Fingerprint of its content."""


class Manifest:
    """The files listed so far. One thread at a time.

    Args:
        folder: Folder of the parts; created by the first publisher.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._folders = Folders(folder.parent.absolute(), Modes(), foreign=True)
        self._prefix = f"{folder.absolute()}{os.sep}"
        self._swept = False
        self._forget()

    def _forget(self) -> None:
        self.entries: list[Entry] = []
        self.starts: list[int] = [0]
        """Start offset of each file, followed by that of the next one."""
        self.names: set[str] = set()
        self._listed: dict[str, tuple[int, int]] = {}
        """By fingerprint: number of a file, and when it was listed."""
        self.incarnation: str | None = None
        self.schema: pa.Schema | None = None
        self._first: Stamp | None = None

    def listed(self, fingerprint: str, modified: int) -> int | None:
        """Number of the listed file that has this content, and had it then.

        Args:
            fingerprint: Of a file that is not listed.
            modified: When it was written, in nanoseconds: a file that was written
                after the other one was listed is another file.
        """
        number, time = self._listed.get(fingerprint, (None, 0))
        return number if modified <= time else None

    def find(self, offset: int) -> int:
        """Index of the entry that contains an offset."""
        return bisect_right(self.starts, offset) - 1

    def refresh(self) -> None:
        """Read parts that any process has published since.

        Raises:
            CorruptData: data_loss; a part is corrupt or missing.
            FormatRefused: permanent; not a manifest, or a newer version.
            StorageFailed: permanent.
        """
        try:
            first = Stamp.of(os.stat(self._part(0)))  # noqa: PTH116 - at each fetch
        except (FileNotFoundError, NotADirectoryError):
            self._forget()
            return
        except OSError as error:
            raise self._failed(error) from error
        if first != self._first:
            self._forget()
            self._first = first
        before = len(self.entries)
        while (part := self._read(self._part(len(self.entries)))) is not None:
            self._take(self._part(len(self.entries)), *part)
        if len(self.entries) > before:
            # The publisher may have crashed between link and sync, so sync before use.
            self._sync()

    def publish(self, entries: Sequence[Entry], schema: pa.Schema) -> bool:
        """List files; False if another process published this part first.

        Args:
            entries: The files, in order.
            schema: Schema of the stream; stored in the first part.

        Raises:
            StorageFailed: permanent; the folder cannot be written.
        """
        lines = [entry._asdict() for entry in entries]
        starts = self.starts[-1]
        for line in lines:
            line["start"] = starts
            starts += line["rows"]
        if not self.entries:
            lines.insert(0, _header(schema))
        text = "".join(f"{json.dumps(line, sort_keys=True)}\n" for line in lines)
        try:
            published = self._link(text.encode())
        except OSError as error:
            raise self._failed(error, done="written") from error
        self.refresh()
        return published

    def close(self) -> None:
        """Close the folder. May be called twice."""
        self._folders.forget()

    # --- parts ----------------------------------------------------------------------

    def _part(self, index: int) -> str:
        return f"{self._prefix}{index:020d}.jsonl"

    def _link(self, text: bytes) -> bool:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._sweep()
        temporary = self.folder / f".{uuid.uuid4().hex}.tmp"
        try:
            with temporary.open("xb") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(temporary, self._part(len(self.entries)))
            except FileExistsError:
                return False
        finally:
            temporary.unlink(missing_ok=True)
        self._sync()
        return True

    def _sweep(self) -> None:
        """Remove, once, temporary files of crashed processes."""
        if self._swept:
            return
        self._swept = True
        for path in self.folder.glob(".*.tmp"):
            with suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > _STALE:
                    path.unlink()

    def _sync(self) -> None:
        for folder in (self.folder, self.folder.parent):
            with suppress(PermissionError):
                handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
                try:
                    os.fsync(handle)
                finally:
                    os.close(handle)

    def _read(self, path: str) -> tuple[str, int] | None:
        """A part, and when it was written; None where there is none yet."""
        try:
            descriptor, status = self._folders.read(path)
            with open(descriptor, encoding="utf-8") as file:  # noqa: PTH123 - at each fetch
                if status.st_size > _MOST:
                    raise _damaged(path, f"it has {status.st_size} bytes")
                return file.read(), status.st_mtime_ns
        except FileNotFoundError:
            return None
        except UnicodeDecodeError as error:
            raise _damaged(path, "it is not UTF-8") from error
        except OSError as error:
            raise self._failed(error) from error

    def _take(self, path: str, text: str, time: int) -> None:
        lines = [_object(path, line) for line in text.splitlines()]
        if not text.endswith("\n"):
            raise _damaged(path, "its last line is truncated")
        if not self.entries:
            self._take_header(path, lines.pop(0))
        if not lines:
            raise _damaged(path, "it lists no file")
        for line in lines:
            entry = _entry(path, line)
            if line["start"] != self.starts[-1] or entry.name in self.names:
                raise _damaged(
                    path, f"the entry {entry.name!r} does not continue the list"
                )
            self._listed[entry.incarnation] = (len(self.entries), time)
            self.entries.append(entry)
            self.starts.append(self.starts[-1] + entry.rows)
            self.names.add(entry.name)

    def _take_header(self, path: str, line: dict[str, Any]) -> None:
        version = line.get("streamfactory_manifest")
        if not isinstance(version, int):
            msg = f"{path!r} is not a manifest of a folder of Arrow files"
            raise FormatRefused(msg)
        if version > VERSION:
            msg = f"the manifest {path!r} has the unsupported version {version}"
            raise FormatRefused(msg)
        try:
            schema = base64.b64decode(line["schema"], validate=True)
            self.schema = pa.ipc.read_schema(pa.py_buffer(schema))
            BatchValidator(self.schema)
            self.incarnation = str(line["incarnation"])
        except (KeyError, TypeError, ValueError, OSError, pa.ArrowException) as error:
            raise _damaged(path, "its header is invalid") from error

    def _failed(self, error: OSError, done: str = "read") -> StorageFailed:
        reason = error.strerror or error
        msg = f"the manifest {str(self.folder)!r} cannot be {done}: {reason}"
        remedy = "set `state.folder` to a writable folder"
        return StorageFailed(msg, remedy=remedy)


def _header(schema: pa.Schema) -> dict[str, Any]:
    return {
        "streamfactory_manifest": VERSION,
        "incarnation": uuid.uuid4().hex,
        "schema": base64.b64encode(schema.serialize()).decode(),
    }


def _object(path: str, line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, "a line is not JSON") from error
    if not isinstance(found, dict):
        raise _damaged(path, "a line is not a JSON object")
    return found


def _entry(path: str, line: dict[str, Any]) -> Entry:
    kinds = Entry.__annotations__
    for key in kinds:
        wanted = int if key in ("rows", "size") else str
        if type(line.get(key)) is not wanted:
            raise _damaged(path, f"a line has no valid {key!r}")
    entry = Entry(**{key: line[key] for key in kinds})
    if not _is_name(entry.name) or not 0 <= entry.rows < 2**62:
        raise _damaged(path, f"{entry.name!r} is not a file of the folder")
    if "start" not in line:
        raise _damaged(path, "a line has no 'start'")
    return entry


def _is_name(name: str) -> bool:
    """Whether a file of the folder can have this name."""
    try:
        os.fsencode(name)
    except UnicodeEncodeError:  # half of a surrogate pair, of JSON
        return False
    return bool(name) and not name.startswith(".") and not {"/", "\0"} & {*name}


def _damaged(path: str, why: str) -> CorruptData:
    msg = f"the manifest part {path!r} is corrupt: {why}"
    remedy = "restore it; if you delete the manifest, the folder becomes a new stream"
    return CorruptData(msg, remedy=remedy)
