"""The durable order of the files of a folder, which defines their offsets.

The manifest consists of parts. A part has a line of JSON per file, and the number of
files in the parts before it. It becomes visible completely or not at all, and if two
readers find files at the same time, one publishes and the other reads its part. Parts
never change. Where they are: `streamfactory.backends.file.foreign.parts`.
"""

from __future__ import annotations

import base64
import json
import os
import uuid
from bisect import bisect_right
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from streamfactory.backends.file.foreign.parts import damaged_part
from streamfactory.spi import BatchValidator, FormatRefused

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from streamfactory.backends.file.foreign.parts import Parts

VERSION: Final = 1


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
        parts: Where they are; closed with the manifest.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._forget()

    def _forget(self) -> None:
        self.entries: list[Entry] = []
        self.starts: list[int] = [0]
        """Start offset of each file, followed by that of the next one."""
        self.names: dict[str, int] = {}
        """Number of each file."""
        self._listed: dict[str, tuple[int, int]] = {}
        """By fingerprint: number of a file, and when it was listed."""
        self.incarnation: str | None = None
        self.schema: pa.Schema | None = None
        self._first: Hashable | None = None

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
        first = self._parts.first()
        if first is None:
            self._forget()
            return
        if first != self._first:
            self._forget()
            self._first = first
        before = len(self.entries)
        while (part := self._parts.read(len(self.entries))) is not None:
            self._take(self._parts.path(len(self.entries)), *part)
        if len(self.entries) > before:
            # The publisher may have crashed before it was durable: sync before use.
            self._parts.sync()

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
        published = self._parts.publish(len(self.entries), text.encode())
        self.refresh()
        return published

    def close(self) -> None:
        """Release resources. May be called twice."""
        self._parts.close()

    # --- parts ----------------------------------------------------------------------

    def _take(self, path: str, text: str, time: int) -> None:
        lines = [_object(path, line) for line in text.splitlines()]
        if not text.endswith("\n"):
            raise damaged_part(path, "its last line is truncated")
        if not self.entries:
            self._take_header(path, lines.pop(0))
        if not lines:
            raise damaged_part(path, "it lists no file")
        for line in lines:
            entry = _entry(path, line)
            if line["start"] != self.starts[-1] or entry.name in self.names:
                raise damaged_part(
                    path, f"the entry {entry.name!r} does not continue the list"
                )
            self._listed[entry.incarnation] = (len(self.entries), time)
            self.entries.append(entry)
            self.starts.append(self.starts[-1] + entry.rows)
            self.names[entry.name] = len(self.entries) - 1

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
            raise damaged_part(path, "its header is invalid") from error


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
        raise damaged_part(path, "a line is not JSON") from error
    if not isinstance(found, dict):
        raise damaged_part(path, "a line is not a JSON object")
    return found


def _entry(path: str, line: dict[str, Any]) -> Entry:
    kinds = Entry.__annotations__
    for key in kinds:
        wanted = int if key in ("rows", "size") else str
        if type(line.get(key)) is not wanted:
            raise damaged_part(path, f"a line has no valid {key!r}")
    entry = Entry(**{key: line[key] for key in kinds})
    if not is_name(entry.name) or not 0 <= entry.rows < 2**62:
        raise damaged_part(path, f"{entry.name!r} is not a file of the folder")
    if "start" not in line:
        raise damaged_part(path, "a line has no 'start'")
    return entry


def is_name(name: str) -> bool:
    """Whether a file of the folder can have this name."""
    try:
        os.fsencode(name)
    except UnicodeEncodeError:  # half of a surrogate pair, of JSON
        return False
    return bool(name) and not name.startswith(".") and not {"/", "\0"} & {*name}
