"""The archived timeline of a Hudi table: commits that its active part has no more.

Read when a reader needs a commit that was archived since it last looked. Since table
version 8 it is a tree of Parquet files (``timeline/history``), which a manifest lists;
before, log files of Avro records (``archived``).
"""

from __future__ import annotations

import io
import json
import re
import threading
from time import sleep
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

import fastavro

from streamfactory.backends.hudi.instants import (
    ACTIONS,
    FOLDER,
    TIME,
    Archived,
    Instant,
    check_record,
    parse_metadata,
)
from streamfactory.spi import CorruptData, FormatRefused
from streamfactory.tables import (
    PieceGone,
    check_avro_schema,
    check_size,
    parse_json,
    stream_rows,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from streamfactory.tables import TableFiles

ARCHIVE: Final = "hoodie.archivelog.folder"
_VERSION: Final = "_version_"
_VERSION_MOST: Final = 32
_TIME: Final = re.compile(TIME)
_PARQUET: Final = re.compile(r"\d{14,17}_\d{14,17}_\d{1,9}\.parquet")
_LOG: Final = re.compile(r"\.commits_\.archive\.\d{1,9}(_[0-9-]+)?")
_COLUMNS: Final = ("instantTime", "completionTime", "action")
_ROWS: Final = 4096
_METADATA_ROWS: Final = 16
_MAGIC: Final = b"#HUDI#"
_AVRO_DATA: Final = 3
_SCHEMA: Final = 2
_TRIES: Final = 3
_PAUSE: Final = 0.02
"""Seconds."""
_METADATA: Final = {
    "commit": "hoodieCommitMetadata",
    "deltacommit": "hoodieCommitMetadata",
    "replacecommit": "hoodieReplaceCommitMetadata",
}


@final
class Archive:
    """Lists archived commits and reads their metadata. Thread-safe.

    Args:
        files: Of the table.
        most: Bytes that the metadata of one instant, or one list of files, may have.
    """

    def __init__(self, files: TableFiles, most: int) -> None:
        self._files = files
        self._most = most
        self._lock = threading.Lock()
        self._folder = ""
        self._state: object = None
        self._instants: list[Instant] = []
        self._known: dict[object, list[Instant]] = {}
        """Instants of each file, or block of a file: neither changes."""

    def instants(self, properties: Mapping[str, str]) -> list[Instant]:
        """The archived commits, looked up now; the same list while there are no others.

        Raises:
            CorruptData: data_loss; the archive is damaged.
        """
        if properties.get("hoodie.timeline.layout.version", "1") == "1":
            folder = f"{FOLDER}/{properties.get(ARCHIVE, 'archived')}"
        else:
            path = properties.get("hoodie.timeline.path", "timeline")
            history = properties.get("hoodie.timeline.history.path", "history")
            folder = f"{FOLDER}/{path}/{history}"
        with self._lock:
            self._folder = folder
        return self._look(folder)

    def metadata(self, instant: Instant) -> Mapping[str, Any]:
        """What an archived instant states about itself.

        Raises:
            FileNotFoundError: It is no longer in the archive.
            FormatRefused: permanent; it is damaged.
            CorruptData: data_loss; the archive is damaged.
        """
        found: Instant | None = instant
        while found is not None and found.archived is not None:
            try:
                return self._read(found, found.archived)
            except (FileNotFoundError, PieceGone, _TornBlock):
                # Hudi merged the file into another one.
                before, listed = found.archived, self._look(self._folder)
                found = next((one for one in listed if one.time == found.time), None)
                if found is not None and found.archived == before:
                    break
        what = f"instant {instant.time} is not in the archived timeline"
        raise FileNotFoundError(what)

    def _look(self, folder: str) -> list[Instant]:
        trouble: Exception | None = None
        for attempt in range(_TRIES):
            try:
                state, parts = self._listed(folder)
                with self._lock:
                    if state == self._state:
                        return self._instants
                return self._load(state, parts)
            except (FileNotFoundError, PieceGone) as error:
                trouble = error  # Hudi merged files after they were listed
            except _TornBlock as error:
                trouble = error  # before version 8, Hudi appends to the last file
                sleep(_PAUSE * (attempt + 1))
        if isinstance(trouble, _TornBlock):
            raise _damaged(str(trouble), "it ends within a block") from trouble
        what = f"{folder!r} of the table lists files that do not exist"
        raise CorruptData(what, remedy="restore the folder from a copy") from trouble

    def _listed(self, folder: str) -> tuple[object, list[str]]:
        """What another state of the archive would not have, and paths of its files."""
        sizes = self._files.sizes(folder)
        logs = sorted(name for name in sizes if _LOG.fullmatch(name))
        if logs:
            state = tuple((name, sizes[name]) for name in logs)
            return state, [f"{folder}/{name}" for name in logs]
        if _VERSION not in sizes:
            return (), []
        version = self._files.read(f"{folder}/{_VERSION}", _VERSION_MOST).strip()
        manifest = f"{folder}/manifest_{version.decode('ascii', 'replace')}"
        try:
            listed = parse_json(self._files.read(manifest, self._most))
            names = [str(one["fileName"]) for one in listed["files"]]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise _damaged(manifest, error) from error
        for name in names:
            if not _PARQUET.fullmatch(name):
                what = f"{manifest!r} of the table names a file {name[:200]!r}"
                raise FormatRefused(what)
        return tuple(names), [f"{folder}/{name}" for name in names]

    def _load(self, state: object, parts: list[str]) -> list[Instant]:
        with self._lock:
            known = dict(self._known)
        fresh: dict[object, list[Instant]] = {}
        for path in parts:
            if path.endswith(".parquet"):
                fresh[path] = known.get(path) or list(self._of_parquet(path))
            else:
                fresh |= self._of_log(path, known)
        found = [one for instants in fresh.values() for one in instants]
        with self._lock:
            if state != self._state:
                self._state, self._instants, self._known = state, found, fresh
            return self._instants

    def _of_parquet(self, path: str) -> Iterator[Instant]:
        for rows, first in stream_rows(
            self._files, path, columns=_COLUMNS, skip=0, most=_ROWS
        ):
            if set(rows.schema.names) != set(_COLUMNS):
                raise _damaged(path, f"it lacks a column of {', '.join(_COLUMNS)}")
            columns = (rows.column(name).to_pylist() for name in _COLUMNS)
            for row, (time, completed, action) in enumerate(zip(*columns, strict=True)):
                if action in ACTIONS:
                    _check_times(path, time, completed)
                    place = Archived(path, 0, first + row)
                    name = f"{path}@{time}"
                    yield Instant(time, completed, action, name, place)

    def _of_log(
        self, path: str, known: Mapping[object, list[Instant]]
    ) -> dict[object, list[Instant]]:
        """Instants of each block of a log file."""
        found: dict[object, list[Instant]] = {}
        with self._files.open(path) as source:
            size, at = source.size(), 0
            while at < size:
                end = _block_end(path, source, at, size)
                if (path, at) in known:
                    found[path, at] = known[path, at]
                else:
                    check_size(path, end - at, self._most)
                    content = source.read_at(end - at, at)
                    found[path, at] = list(_completed(path, at, content))
                at = end
        return found

    def _read(self, instant: Instant, place: Archived) -> Mapping[str, Any]:
        if place.path.endswith(".parquet"):
            columns = ["instantTime", "metadata"]
            for rows, first in stream_rows(
                self._files,
                place.path,
                columns=columns,
                skip=place.row,
                most=_METADATA_ROWS,
            ):
                if set(rows.schema.names) != set(columns):
                    break
                at = place.row - first
                if rows.column("instantTime")[at].as_py() != instant.time:
                    break
                content = rows.column("metadata")[at].as_py() or b""
                if not isinstance(content, bytes):
                    break
                check_size(place.path, len(content), self._most)
                return parse_metadata(instant.time, content, self._most)
            why = f"row {place.row} is not the metadata of {instant.time}"
            raise _damaged(place.path, why)
        with self._files.open(place.path) as source:
            end = _block_end(place.path, source, place.block, source.size())
            check_size(place.path, end - place.block, self._most)
            content = source.read_at(end - place.block, place.block)
        for row, record in _entries(place.path, content):
            if row == place.row and record.get("commitTime") == instant.time:
                # Null is no effect; a schema without the field is damage.
                found: Any = record.get(_METADATA[instant.action], "")
                if found is not None and not isinstance(found, dict):
                    why = f"the metadata of {instant.time} is no record"
                    raise _damaged(place.path, why)
                return found or {}
        raise _damaged(place.path, f"record {place.row} is not {instant.time}")


class _TornBlock(Exception):
    """A file ends within a block: it is being written, or damaged."""


class _Entry(NamedTuple):
    row: int
    record: Mapping[str, Any]


def _completed(path: str, block: int, content: bytes) -> Iterator[Instant]:
    for row, record in _entries(path, content):
        action, time = record.get("actionType"), record.get("commitTime")
        if record.get("actionState") == "COMPLETED" and action in ACTIONS:
            _check_times(path, time, time)
            name = f"{path}@{time}"
            yield Instant(
                str(time), str(time), action, name, Archived(path, block, row)
            )


def _block_end(path: str, source: Any, at: int, size: int) -> int:
    """The first byte behind a block: the magic, its length, its content."""
    head = source.read_at(len(_MAGIC) + 8, at)
    end = at + len(head) + int.from_bytes(head[len(_MAGIC) :], "big")
    if not head.startswith(_MAGIC[: len(head)]):
        raise _damaged(path, f"no block at byte {at}")
    if len(head) < len(_MAGIC) + 8 or end > size:
        raise _TornBlock(path)
    return int(end)


def _entries(path: str, content: bytes) -> Iterator[_Entry]:
    """The records of a block; none of a block of another kind."""
    source = io.BytesIO(content)

    def exactly(length: int) -> bytes:
        found = source.read(length)
        if len(found) != length:
            what = "it ends within a block"
            raise EOFError(what)
        return found

    def integer() -> int:
        return int.from_bytes(exactly(4), "big")

    try:
        source.seek(len(_MAGIC) + 8 + 4)
        if integer() != _AVRO_DATA:
            return
        header: dict[int, bytes] = {}
        for _ in range(integer()):
            key = integer()
            header[key] = exactly(integer())
        stated = json.loads(header[_SCHEMA])
        check_avro_schema(stated)
        schema = fastavro.parse_schema(stated)
        source.seek(8 + 4, io.SEEK_CUR)  # length and version of the content
        for row in range(integer()):
            record = io.BytesIO(exactly(integer()))
            found: Any = fastavro.schemaless_reader(record, schema, None)
            check_record(found)
            yield _Entry(row, found)
    except Exception as error:  # whatever damaged Avro does to its reader
        raise _damaged(path, error) from error


def _check_times(path: str, *times: object) -> None:
    for time in times:
        if not isinstance(time, str) or not _TIME.fullmatch(time):
            raise _damaged(path, f"an instant has the time {time!r}")


def _damaged(path: str, why: object) -> CorruptData:
    what = f"the archived timeline of the table is damaged in {path!r}: {why}"
    return CorruptData(what[:300], remedy="restore the file from a copy")
