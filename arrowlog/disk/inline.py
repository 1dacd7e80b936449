"""Inline segments: rows of small epochs, within the record that commits them.

An inline segment has the content of a file of rows, and is written and read by the same
code. The next merge moves its rows into a file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, final

import pyarrow as pa

from streamfactory.arrowlog.carried import CarriedRows
from streamfactory.arrowlog.disk.format_lookup import format_named
from streamfactory.arrowlog.disk.names import ARROW
from streamfactory.arrowlog.disk.segments import RollingWriter
from streamfactory.arrowlog.disk.staging import StagedFile, pieces
from streamfactory.arrowlog.disk.storage import Blobs, NewBlob

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streamfactory.arrowlog.disk.settings import Settings
    from streamfactory.arrowlog.disk.storage import Storage


Rows = Mapping[int, Sequence[pa.RecordBatch]]
"""Batches by partition, in the order of their offsets."""


def inline_segments(
    rows: Rows, schema: pa.Schema, settings: Settings
) -> list[tuple[StagedFile, bytes]]:
    """Return inline segments with their contents; mostly one."""
    blobs = _MemoryBlobs()
    files = write_segments(rows, blobs, schema, settings)
    return [(file, blobs.contents[file.name]) for file in files]


def write_segments(
    rows: Rows, blobs: Blobs, schema: pa.Schema, settings: Settings
) -> list[StagedFile]:
    """Write rows to Arrow segments."""
    writer = RollingWriter(blobs, schema, settings, format_named(ARROW))
    try:
        for partition, batches in sorted(rows.items()):
            for piece in pieces(batches, writer.cut):
                writer.write(partition, piece)
        writer.roll()
    except BaseException:
        writer.abandon()
        raise
    return StagedFile.written("", writer.done)


def write_carried(
    parts: Sequence[StagedFile | CarriedRows],
    storage: Storage,
    schema: pa.Schema,
    settings: Settings,
) -> list[StagedFile]:
    """Write carried rows to files; files among the parts remain where they are."""
    files: list[StagedFile] = []
    written: list[str] = []
    waiting: dict[int, list[pa.RecordBatch]] = {}
    try:
        for part in [*parts, None]:
            if isinstance(part, CarriedRows):
                for partition, rows in part.parts:
                    waiting.setdefault(partition, []).append(rows.batch)
                continue
            if waiting:
                found = write_segments(waiting, storage, schema, settings)
                written += [file.name for file in found]
                files += found
                waiting = {}
            files += () if part is None else (part,)
    except BaseException:
        storage.remove(written)
        raise
    return files


@final
class _MemoryBlobs(Blobs):
    location = "a record"
    largest = None

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}

    def create(self, name: str) -> NewBlob:
        return _MemoryBlob(self.contents, name)

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            self.contents.pop(name, None)


@final
class _MemoryBlob(NewBlob):
    def __init__(self, contents: dict[str, bytes], name: str) -> None:
        self._contents = contents
        self._name = name
        self.sink = pa.BufferOutputStream()

    def finish(self) -> int:
        content = self._contents[self._name] = self.sink.getvalue().to_pybytes()
        return len(content)

    def abandon(self) -> None:
        self.sink = None
