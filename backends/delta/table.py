"""A Delta table: commits, pieces and rows."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any, Final, final

from streamfactory.backends.delta.changes import (
    TYPE,
    FileChange,
    file_changes,
    kinds_of,
)
from streamfactory.backends.delta.log import DeltaLog
from streamfactory.backends.delta.replay import check_protocol, live_files, stated
from streamfactory.backends.delta.state import FEED, State, by_physical_name
from streamfactory.backends.delta.vectors import chosen_rows
from streamfactory.spi import (
    ConfigError,
    OffsetOutOfRange,
    Unsupported,
)
from streamfactory.tables import (
    APPENDS,
    INSERT,
    START_REMEDY,
    Chunk,
    Commit,
    FileColumns,
    Kept,
    Layout,
    Piece,
    Stored,
    StreamColumns,
    Table,
    bare,
    check_fields,
    check_ids,
    count_rows,
    open_parquet,
    relative_path,
    select_rows,
    stored_piece,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    import pyarrow as pa

    from streamfactory.backends.delta.actions import File
    from streamfactory.spi import StreamConfig
    from streamfactory.tables import DataFile, Oldest, TableFiles

_HOW: Final = (
    "turn the feed on with ALTER TABLE ... SET TBLPROPERTIES "
    f"({FEED} = true), for commits from then on, or set changes=appends to leave "
    "such commits out"
)
_DIGITS: Final = 18
_STATES: Final = 16


@final
class DeltaTable(Table):
    """See `Table`.

    Args:
        config: Names the location and what to do without the change data feed.
        files: Of the table.
        log: Of the table; None opens it.
    """

    layout = Layout(row_bits=38)

    def __init__(
        self, config: StreamConfig, files: TableFiles, log: DeltaLog | None = None
    ) -> None:
        self._appends = config["changes"] == APPENDS
        self._location: str = config["path"]
        self._files = files
        self._most: int = config["log.max.bytes"]
        self._log = log or DeltaLog(files, self._most)
        self._lock = threading.Lock()
        self._states: Kept[State] = Kept(_STATES)
        self.columns = StreamColumns(by_physical_name)
        self._generation = 0

    def identity(self) -> str:
        return self._opened()[0]

    def newest(self) -> Commit:
        return self._commit(self._newest())

    def oldest(self) -> Oldest:
        return self._log.oldest()

    def at_or_after(self, ordinal: int) -> Commit | None:
        return None if ordinal > self._newest() else self._commit(ordinal)

    def count_commits(self, start: int, end: int) -> int:
        return end - start

    def at_time(self, timestamp_ms: int) -> Commit | None:
        version = self._log.at_time(timestamp_ms)
        return None if version is None else self._commit(version)

    def ordinal_of(self, commit: str) -> int:
        newest = self._newest()
        text = commit if commit.isascii() and commit.isdecimal() else ""
        if not text or len(text) > _DIGITS or int(text) > newest:
            oldest = self.oldest().ordinal
            what = f"start.commit is {commit[:40]!r}, which is no version of the table:"
            what += f" it has the versions {oldest} to {newest}"
            raise ConfigError(what, remedy=START_REMEDY)
        return int(text)

    def schema(self) -> pa.Schema:
        return bare(self._opened()[1])

    def snapshot(self, commit: Commit) -> Sequence[Piece]:
        self._state(commit.ordinal)  # refuses what it does not support
        files = live_files(self._log, commit.ordinal)
        return [piece for piece, _ in self.pieces(files, commit)]

    def pieces(
        self, files: Sequence[File], commit: Commit
    ) -> Sequence[tuple[Piece, File]]:
        """The pieces of data files as of a commit, in the order of the snapshot."""
        ordered = sorted(files, key=lambda file: (file.modified_ms, file.path))
        return [
            (self._piece(FileChange(one, INSERT, outside=one.vector), commit), one)
            for one in ordered
        ]

    def changes(self, commit: Commit) -> Sequence[Piece]:
        actions = self._log.read(commit.ordinal)
        added = [one for one in actions.add if one.changes]
        removed = [one for one in actions.remove if one.changes]
        if not added and not removed:
            return []
        feed = self._state(commit.ordinal).feed
        if actions.cdc and feed and not self._appends:
            return [self._piece(FileChange(one, TYPE), commit) for one in actions.cdc]
        if removed and self._appends:
            return []
        if removed and not feed:
            what = f"commit {commit.id} rewrites or deletes rows, and the change data "
            what += "feed of the table is off"
            raise Unsupported(
                what, offset=self.layout.changes(commit.ordinal), remedy=_HOW
            )
        return [self._piece(one, commit) for one in file_changes(added, removed)]

    def has_changes(self, commit: Commit) -> bool:
        actions = self._log.read(commit.ordinal)
        return any(one.changes for one in actions.add + actions.remove)

    def read(
        self, piece: Piece, skip: int, fields: Sequence[str] | None, rows: int
    ) -> Generator[Chunk]:
        chosen = chosen_rows(self._files, piece, self._location, self._most)
        feed, path = piece.change == TYPE, piece.path
        with open_parquet(self._files, path) as file:
            columns = self._columns_of(piece, file, fields)
            names = [*columns.names, TYPE] if feed else columns.names
            for batch, first in file.stream(names, skip, rows):
                kinds = kinds_of(batch, path) if feed else None
                chunk = Chunk(columns.convert(batch), first, changes=kinds)
                if chosen is not None:
                    chunk = select_rows(chunk, chosen[0], inside=chosen[1])
                yield chunk

    def stored(self, piece: Piece) -> Stored:
        detail: Any = piece.detail
        whole = detail["inside"] is None and detail["outside"] is None
        whole &= piece.change != TYPE
        columns_of = partial(self._columns_of, piece)
        return stored_piece(self._files, piece, columns_of, whole=whole)

    def _columns_of(
        self, piece: Piece, file: DataFile, fields: Sequence[str] | None = None
    ) -> FileColumns:
        """The columns of a file of rows, which is checked."""
        detail: Any = piece.detail
        state, path = self._state(detail["version"]), piece.path
        file.check_count(piece.span)
        if state.needs_ids:
            check_ids(file.schema, path)
        if not state.drops:
            check_fields(file.schema, state.schema, path)
        wanted = self.columns.wanted(detail["version"], state.schema, fields)
        constants = detail["constants"]
        return FileColumns(file.schema, wanted, state.match, constants, path)

    def _opened(self) -> tuple[str, pa.Schema]:
        """The table's id, and its columns as of when the stream was opened."""
        newest = self._newest()
        state = self._state(newest)
        return state.id, self.columns.opened(state.id, newest, lambda: state.schema)

    def _newest(self) -> int:
        newest = self._log.newest()
        with self._lock:
            if self._generation != self._log.generation:
                self._generation = self._log.generation
                self._states.clear()
        return newest

    def _commit(self, version: int) -> Commit:
        try:
            time_ms = self._log.read(version).time_ms
        except OffsetOutOfRange:  # its checkpoint may be left: a snapshot can be read
            time_ms = None
        return Commit(version, str(version), time_ms)

    def _piece(self, change: FileChange, commit: Commit) -> Piece:
        file, version = change.file, commit.ordinal
        path = relative_path(file.path, self._location)
        # The log may state 0 rows for a file that has some: they are counted.
        span = file.records or count_rows(self._files, path)
        detail = {
            "version": version,
            "constants": self._state(version).constants(version, file.values),
            "inside": change.inside,
            "outside": change.outside,
        }
        return Piece(path, span, file.size, change.kind, detail)

    def _state(self, version: int) -> State:
        state = self._states.get(version)
        if state is not None:
            return state
        before = self._states.get(version - 1)
        if before is None:
            state = State(version, stated(self._log, version))
        else:
            actions = self._log.read(version)
            if actions.protocol is not None:
                check_protocol(version, actions.protocol)
            metadata = actions.metadata
            state = before if metadata is None else State(version, metadata)
        return self._states.add(version, state)
