"""An Iceberg table: commits, pieces and rows."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, final

from pyiceberg.manifest import (
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntryStatus,
)
from pyiceberg.table.snapshots import Operation

from streamfactory.backends.iceberg.deletes import chosen_rows, targets
from streamfactory.backends.iceberg.schemas import TableSchemas, arrow_schema
from streamfactory.spi import ConfigError, FormatRefused, OffsetOutOfRange
from streamfactory.tables import (
    APPENDS,
    DELETE,
    INSERT,
    START_REMEDY,
    Chunk,
    Commit,
    FileColumns,
    Layout,
    Oldest,
    Piece,
    Stored,
    StreamColumns,
    Table,
    bare,
    by_id,
    check_ids,
    count_rows,
    open_parquet,
    path_below,
    select_rows,
    stored_piece,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    import pyarrow as pa
    from pyiceberg.manifest import DataFile, ManifestEntry
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

    from streamfactory.backends.iceberg.metadata import IcebergMetadata
    from streamfactory.spi import StreamConfig
    from streamfactory.tables import DataFile as ParquetFile
    from streamfactory.tables import TableFiles

_CREATED: Final = Commit(0, "0", None)
"""Before the first snapshot: sequence numbers start with 1."""
_LAST_MS: Final = 253_402_300_800_000
"""The year 10000: later times are damaged."""
_FORMATS: Final = (
    "rewrite the table with Parquet data files and position deletes in Parquet: others "
    "are not supported"
)


@final
class IcebergTable(Table):
    """See `Table`. Ordinals are sequence numbers of the main branch.

    Args:
        config: Names what to do with commits that rewrite rows.
        files: Of the table.
        metadata: Of the table; closed with it.
    """

    layout = Layout(row_bits=38)

    def __init__(
        self, config: StreamConfig, files: TableFiles, metadata: IcebergMetadata
    ) -> None:
        self._appends = config["changes"] == APPENDS
        self._files = files
        self._metadata = metadata
        self.columns = StreamColumns(by_id)

    def identity(self) -> str:
        return self._opened()[0]

    def newest(self) -> Commit:
        line = main_line(self._metadata.current())
        return _commit(line[-1]) if line else _CREATED

    def oldest(self) -> Oldest:
        metadata = self._metadata.current()
        line = main_line(metadata)
        if _is_whole(line):
            return Oldest(0, changes=True, created=True)
        return Oldest(sequence(line[0]), changes=True)

    def at_or_after(self, ordinal: int) -> Commit | None:
        line = main_line(self._metadata.current())
        whole = _is_whole(line)
        if ordinal == 0 and whole:
            return _CREATED
        if not whole and ordinal < sequence(line[0]):
            what = f"the snapshots of sequence numbers {ordinal} to "
            what += f"{sequence(line[0]) - 1} were expired"
            raise OffsetOutOfRange(what, offset=self.layout.changes(ordinal))
        found = (s for s in line if sequence(s) >= ordinal)
        snapshot = next(found, None)
        return None if snapshot is None else _commit(snapshot)

    def count_commits(self, start: int, end: int) -> int:
        line = main_line(self._metadata.current())
        return sum(start <= sequence(snapshot) < end for snapshot in line)

    def at_time(self, timestamp_ms: int) -> Commit | None:
        line = main_line(self._metadata.current())
        # Clocks of writers differ: the first behind which no earlier one comes.
        found = None
        for snapshot in reversed(line):
            if snapshot.timestamp_ms < timestamp_ms:
                break
            found = snapshot
        return None if found is None else _commit(found)

    def ordinal_of(self, commit: str) -> int:
        line = main_line(self._metadata.current())
        for snapshot in line:
            if str(snapshot.snapshot_id) == commit:
                return sequence(snapshot)
        what = f"start.commit is {commit[:40]!r}, which is no snapshot of the main "
        what += "branch of the table: "
        if not line:
            what += "it has none yet"
        else:
            what += f"it has {len(line)}, from {line[0].snapshot_id} to "
            what += str(line[-1].snapshot_id)
        raise ConfigError(what, remedy=START_REMEDY)

    def schema(self) -> pa.Schema:
        return bare(self._opened()[1])

    def snapshot(self, commit: Commit) -> Sequence[Piece]:
        metadata, snapshot = self._find(commit)
        if snapshot is None:
            return []
        return [piece for piece, _ in self.files(metadata, snapshot)]

    def files(
        self, metadata: TableMetadata, snapshot: Snapshot
    ) -> Sequence[tuple[Piece, DataFile]]:
        """The pieces of the table as of a snapshot, and their data files."""
        live = [e for e in self._entries(metadata, snapshot) if _is_live(e)]
        data = sorted((e for e in live if _is_data(e)), key=_data_sequence)
        deletes = [e for e in live if not _is_data(e)]
        schemas = TableSchemas(metadata)
        return [
            (self._piece(schemas, e, snapshot, deletes, INSERT), e.data_file)
            for e in data
        ]

    def changes(self, commit: Commit) -> Sequence[Piece]:
        metadata, snapshot = self._find(commit)
        if snapshot is None or not self._changes_rows(snapshot):
            return []
        own = snapshot.snapshot_id
        entries = self._entries(metadata, snapshot, own=True)
        removed = [
            e
            for e in entries
            if _is_data(e)
            and e.status is ManifestEntryStatus.DELETED
            and e.snapshot_id == own
        ]
        added = [
            e
            for e in entries
            if e.status is ManifestEntryStatus.ADDED and e.snapshot_id == own
        ]
        # Rows that were marked as deleted before are not deleted once more. Delete
        # files that this commit removed applied before it; those that were removed
        # earlier did not.
        before = [
            e
            for e in entries
            if not _is_data(e)
            and _data_sequence(e) < commit.ordinal
            and (_is_live(e) or e.snapshot_id == own)
        ]
        schemas = TableSchemas(metadata)
        pieces = [self._piece(schemas, e, snapshot, before, DELETE) for e in removed]
        marks = [e for e in added if not _is_data(e)]
        pieces += self._marked(schemas, marks, before, snapshot)
        data = [e for e in added if _is_data(e)]
        return pieces + [self._piece(schemas, e, snapshot, (), INSERT) for e in data]

    def has_changes(self, commit: Commit) -> bool:
        _, snapshot = self._find(commit)
        return snapshot is not None and self._changes_rows(snapshot)

    def read(
        self, piece: Piece, skip: int, fields: Sequence[str] | None, rows: int
    ) -> Generator[Chunk]:
        detail: Any = piece.detail
        chosen = chosen_rows(self._files, piece, detail)
        with open_parquet(self._files, piece.path) as file:
            columns = self._columns_of(piece, file, fields)
            for batch, first in file.stream(columns.names, skip, rows):
                chunk = Chunk(columns.convert(batch), first)
                if chosen is not None:
                    chunk = select_rows(chunk, chosen[0], inside=chosen[1])
                yield chunk

    def stored(self, piece: Piece) -> Stored:
        detail: Any = piece.detail
        whole = not (detail["deletes"] or detail["only"] or detail["before"])
        columns_of = partial(self._columns_of, piece)
        return stored_piece(self._files, piece, columns_of, whole=whole)

    def _columns_of(
        self, piece: Piece, file: ParquetFile, fields: Sequence[str] | None = None
    ) -> FileColumns:
        """The columns of a file of rows, which is checked."""
        detail: Any = piece.detail
        file.check_count(piece.span)
        check_ids(file.schema, piece.path)
        later = arrow_schema(detail["schema"])
        wanted = self.columns.wanted(detail["ordinal"], later, fields)
        return FileColumns(file.schema, wanted, detail["match"], {}, piece.path)

    def close(self) -> None:
        self._metadata.close()

    def _opened(self) -> tuple[str, pa.Schema]:
        """The table's id, and its columns as of when the stream was opened."""
        now = self._metadata.current()
        identity, last = str(now.table_uuid), now.current_snapshot()
        newest = 0 if last is None else sequence(last)
        columns = self.columns.opened(
            identity, newest, lambda: arrow_schema(now.schema())
        )
        return identity, columns

    def _changes_rows(self, snapshot: Snapshot) -> bool:
        if is_compaction(snapshot):
            return False
        return not self._appends or _operation(snapshot) is Operation.APPEND

    def _find(self, commit: Commit) -> tuple[TableMetadata, Snapshot | None]:
        metadata = self._metadata.current()
        if commit.ordinal == 0:
            return metadata, None
        for snapshot in main_line(metadata):
            if sequence(snapshot) == commit.ordinal:
                return metadata, snapshot
        what = f"snapshot {commit.id} is no longer in the metadata of the table"
        raise OffsetOutOfRange(what, offset=self.layout.changes(commit.ordinal))

    def _entries(
        self, metadata: TableMetadata, snapshot: Snapshot, *, own: bool = False
    ) -> list[ManifestEntry]:
        """Entries of the manifests of a snapshot.

        Args:
            metadata: Of the table.
            snapshot: Which.
            own: Leave out manifests of data files that earlier snapshots wrote: the
                work is that of the commit then, however large the table is.
        """
        found: list[ManifestEntry] = []
        location = metadata.location
        for manifest in self._metadata.manifests(snapshot, location):
            earlier = manifest.added_snapshot_id != snapshot.snapshot_id
            if own and earlier and manifest.content is ManifestContent.DATA:
                continue
            found += self._metadata.entries(manifest, location)
        return found

    def _piece(
        self,
        schemas: TableSchemas,
        entry: ManifestEntry,
        snapshot: Snapshot,
        deletes: Sequence[ManifestEntry],
        change: str,
    ) -> Piece:
        metadata, file = schemas.metadata, entry.data_file
        _check_format(file, snapshot)
        applied = [
            _delete_path(metadata, e.data_file, snapshot)
            for e in deletes
            if _data_sequence(e) >= _data_sequence(entry)
            and _partition(e) == _partition(entry)
        ]
        path = path_below(metadata.location, file.file_path)
        detail = {
            "schema": schemas.at(snapshot),
            "ordinal": sequence(snapshot),
            "match": schemas.matching(file, path),
            "deletes": applied,
            "name": file.file_path,
            "only": False,
            "before": (),
        }
        size = file.file_size_in_bytes
        # A manifest may state 0 rows for a file that has some: they are counted.
        span = file.record_count
        if span <= 0:
            span = count_rows(self._files, path)
        return Piece(path, span, size, change, detail)

    def _marked(
        self,
        schemas: TableSchemas,
        marks: Sequence[ManifestEntry],
        before: Sequence[ManifestEntry],
        snapshot: Snapshot,
    ) -> Iterator[Piece]:
        """Pieces of the rows that files of position deletes mark.

        A delete file applies to data files of its own partition.
        """
        metadata = schemas.metadata
        older: dict[object, list[str]] = {}
        for entry in before:
            path = _delete_path(metadata, entry.data_file, snapshot)
            older.setdefault(_partition(entry), []).append(path)
        found: dict[str, dict[str, ManifestEntry]] = {}
        for entry in marks:
            path = _delete_path(metadata, entry.data_file, snapshot)
            for name in targets(self._files, path):
                found.setdefault(name, {})[path] = entry
        for name, deletes in sorted(found.items()):
            path = path_below(metadata.location, name)
            same = dict.fromkeys(map(_partition, deletes.values()))
            mark = next(iter(deletes.values())).data_file
            detail = {
                "schema": schemas.at(snapshot),
                "ordinal": sequence(snapshot),
                "match": schemas.matching(mark, path),
                "deletes": list(deletes),
                "name": name,
                "only": True,
                "before": [one for key in same for one in older.get(key, ())],
            }
            span = count_rows(self._files, path)
            yield Piece(path, span, None, DELETE, detail)


def main_line(metadata: TableMetadata) -> list[Snapshot]:
    """Snapshots of the main branch that are left, the oldest first."""
    by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    line: list[Snapshot] = []
    at = metadata.current_snapshot_id
    while at is not None and at in by_id and len(line) <= len(by_id):
        line.append(by_id[at])
        at = by_id[at].parent_snapshot_id
    line.reverse()
    numbers = [sequence(snapshot) for snapshot in line]
    if any(a >= b for a, b in pairwise(numbers)):
        what = "the snapshots of the table are not in order of their sequence numbers"
        raise FormatRefused(what)
    return line


def is_compaction(snapshot: Snapshot) -> bool:
    """Whether a snapshot replaced files by others with the same rows."""
    return _operation(snapshot) is Operation.REPLACE


def _operation(snapshot: Snapshot) -> Operation | None:
    return None if snapshot.summary is None else snapshot.summary.operation


def _is_whole(line: Sequence[Snapshot]) -> bool:
    """Whether no snapshot of the main branch was expired.

    Of the first one that is left, some writers keep the id of its parent, and pyiceberg
    removes it.
    """
    if not line:
        return True
    return line[0].parent_snapshot_id is None and sequence(line[0]) <= 1


def sequence(snapshot: Snapshot) -> int:
    """Number of a snapshot: it rises with each commit, and begins with 1."""
    return snapshot.sequence_number or 0


def _commit(snapshot: Snapshot) -> Commit:
    time = snapshot.timestamp_ms
    known = 0 <= time < _LAST_MS
    number = sequence(snapshot)
    return Commit(number, str(snapshot.snapshot_id), time if known else None)


def _is_live(entry: ManifestEntry) -> bool:
    return entry.status is not ManifestEntryStatus.DELETED


def _is_data(entry: ManifestEntry) -> bool:
    return entry.data_file.content is DataFileContent.DATA


def _partition(entry: ManifestEntry) -> object:
    return entry.data_file.spec_id, entry.data_file.partition


def _data_sequence(entry: ManifestEntry) -> int:
    return entry.sequence_number or 0


def _check_format(file: DataFile, snapshot: Snapshot) -> None:
    if file.file_format is not FileFormat.PARQUET:
        what = f"snapshot {snapshot.snapshot_id} has files in {file.file_format.value}"
        raise FormatRefused(what, remedy=_FORMATS)


def _delete_path(metadata: TableMetadata, file: DataFile, snapshot: Snapshot) -> str:
    if file.content is not DataFileContent.POSITION_DELETES:
        what = f"snapshot {snapshot.snapshot_id} has equality deletes"
        raise FormatRefused(what, remedy=_FORMATS)
    _check_format(file, snapshot)
    return path_below(metadata.location, file.file_path)
