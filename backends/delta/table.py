"""A Delta table: commits, pieces and rows."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, final

import pyarrow as pa
from deltalake import DeltaTable as Opened
from deltalake.exceptions import DeltaError

from streamfactory.backends.delta.changes import (
    TYPE,
    FileChange,
    count_records,
    file_changes,
    kinds_of,
)
from streamfactory.backends.delta.log import DeltaLog
from streamfactory.backends.delta.state import FEED, State
from streamfactory.backends.delta.vectors import chosen_rows
from streamfactory.spi import (
    ConfigError,
    FormatRefused,
    OffsetOutOfRange,
    Unsupported,
)
from streamfactory.tables import (
    APPENDS,
    INSERT,
    START_REMEDY,
    Chunk,
    Commit,
    Kept,
    Layout,
    Piece,
    Table,
    conform_rows,
    count_rows,
    relative_path,
    select_rows,
    store_failure,
    stream_rows,
    without_rows,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from streamfactory.spi import StreamConfig
    from streamfactory.tables import Oldest, TableFiles

_HOW: Final = (
    "turn the feed on with ALTER TABLE ... SET TBLPROPERTIES "
    f"({FEED} = true), for commits from then on, or set changes=appends to leave "
    "such commits out"
)
_PURGE: Final = (
    "turn deletion vectors off with delta.enableDeletionVectors = false and "
    "REORG TABLE ... APPLY (PURGE)"
)
_DIGITS: Final = 18
_STATES: Final = 16


@final
class DeltaTable(Table):
    """See `Table`.

    Args:
        config: Names the location and what to do without the change data feed.
        files: Of the table.
        storage: Options of the location for ``deltalake``.
    """

    layout = Layout(row_bits=38)

    def __init__(
        self, config: StreamConfig, files: TableFiles, storage: Mapping[str, str]
    ) -> None:
        self._appends = config["changes"] == APPENDS
        self._location: str = config["path"]
        self._files = files
        self._storage = dict(storage)
        self._most: int = config["log.max.bytes"]
        self._log = DeltaLog(files, self._most)
        self._lock = threading.Lock()
        self._states: Kept[State] = Kept(_STATES)
        self._identity: tuple[int, str] | None = None
        """As of a version."""
        self._generation = 0

    def identity(self) -> str:
        newest = self._newest()
        with self._lock:
            known = self._identity
        since = -1 if known is None else known[0]
        if known is not None and since == newest:
            return known[1]
        changed = None
        if known is not None:
            for version in range(since + 1, newest + 1):
                changed = self._log.read(version).metadata or changed
        if known is None:
            identity = str(self._opened(newest).metadata().id)
        else:
            identity = known[1] if changed is None else str(changed.get("id"))
        with self._lock:
            self._identity = (newest, identity)
        return identity

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
        return self._state(self._newest()).schema

    def snapshot(self, commit: Commit) -> Sequence[Piece]:
        self._state(commit.ordinal)
        opened = self._opened(commit.ordinal)
        actions = pa.table(opened.get_add_actions()).to_pylist()
        actions.sort(key=lambda add: (add["modification_time"], add["path"]))
        kept = self._kept_rows(opened)
        pieces = []
        for add in actions:
            path = relative_path(add["path"], self._location)
            values = add.get("partition") or {}
            size, records = add["size_bytes"], add["num_records"]
            piece = self._piece(path, values, size, records, INSERT, commit.ordinal)
            mask = kept.pop(path, None)
            if mask is not None:
                piece = replace(piece, detail={**(piece.detail or {}), "kept": mask})
            pieces.append(piece)
        if kept:
            what = f"the deletion vector of {next(iter(kept))!r} is of no data file"
            raise FormatRefused(what, remedy=_PURGE)
        return pieces

    def changes(self, commit: Commit) -> Sequence[Piece]:
        actions = self._log.read(commit.ordinal)
        added = [add for add in actions.add if add.get("dataChange", True)]
        removed = [one for one in actions.remove if one.get("dataChange", True)]
        if not added and not removed:
            return []
        feed = self._state(commit.ordinal).feed
        if actions.cdc and feed and not self._appends:
            return [self._change(FileChange(one, TYPE), commit) for one in actions.cdc]
        if removed and self._appends:
            return []
        if removed and not feed:
            what = f"commit {commit.id} rewrites or deletes rows, and the change data "
            what += "feed of the table is off"
            raise Unsupported(
                what, offset=self.layout.changes(commit.ordinal), remedy=_HOW
            )
        return [self._change(one, commit) for one in file_changes(added, removed)]

    def has_changes(self, commit: Commit) -> bool:
        actions = self._log.read(commit.ordinal)
        return any(
            action.get("dataChange", True) for action in actions.add + actions.remove
        )

    def read(
        self, piece: Piece, skip: int, fields: Sequence[str] | None, rows: int
    ) -> Generator[Chunk]:
        assert piece.detail is not None
        version: Any = piece.detail["version"]
        constants: Any = piece.detail["constants"]
        schema = self._state(version).schema
        names = [n for n in schema.names if fields is None or n in fields]
        schema = pa.schema([schema.field(name) for name in names])
        columns = [name for name in names if name not in constants]
        feed = piece.change == TYPE
        found = stream_rows(
            self._files,
            piece.path,
            columns=[*columns, TYPE] if feed else columns,
            skip=skip,
            most=rows,
        )
        kept: Any = piece.detail.get("kept")
        chosen = chosen_rows(self._files, piece, self._location, self._most)
        for batch, first in found:
            conformed = conform_rows(batch, schema, constants, piece.path)
            kinds = kinds_of(batch, piece.path) if feed else None
            chunk = Chunk(conformed, first, changes=kinds)
            if kept is not None:
                chunk = without_rows(chunk, kept)
            elif chosen is not None:
                chunk = select_rows(chunk, chosen[0], inside=chosen[1])
            yield chunk

    def _newest(self) -> int:
        newest = self._log.newest()
        with self._lock:
            if self._generation != self._log.generation:
                self._generation, self._identity = self._log.generation, None
                self._states.clear()
        return newest

    def _commit(self, version: int) -> Commit:
        try:
            time_ms = self._log.read(version).time_ms
        except OffsetOutOfRange:  # its checkpoint may be left: a snapshot can be read
            time_ms = None
        return Commit(version, str(version), time_ms)

    def _change(self, change: FileChange, commit: Commit) -> Piece:
        action = change.action
        path = action.get("path")
        values = action.get("partitionValues") or {}
        if not isinstance(path, str) or not isinstance(values, dict):
            what = f"commit {commit.id} of the table names no file"
            raise FormatRefused(what)
        size = action.get("size")
        piece = self._piece(
            relative_path(path, self._location),
            values,
            size if type(size) is int and size >= 0 else None,
            count_records(action),
            change.kind,
            commit.ordinal,
        )
        vectors = {"inside": change.inside, "outside": change.outside}
        return replace(piece, detail={**(piece.detail or {}), **vectors})

    def _kept_rows(self, opened: Opened) -> dict[str, pa.BooleanArray]:
        """Of files with a deletion vector, which rows are left: a bit for each row."""
        features = opened.protocol().reader_features or ()
        if "deletionVectors" not in features:
            return {}
        root = opened.table_uri.rstrip("/") + "/"
        kept = {}
        for found in opened.deletion_vectors():
            batch = pa.record_batch(found)
            masks = batch.column("selection_vector")
            for at, uri in enumerate(batch.column("filepath").to_pylist()):
                path = relative_path(uri.removeprefix(root), self._location)
                kept[path] = masks[at].values.cast(pa.bool_())
        return kept

    def _piece(
        self,
        path: str,
        values: Mapping[str, Any],
        size: int | None,
        records: int | None,
        change: str,
        version: int,
    ) -> Piece:
        constants = self._state(version).constants(version, values)
        # The log may state 0 rows for a file that has some: they are counted.
        span = records or count_rows(self._files, path)
        detail = {"version": version, "constants": constants}
        return Piece(path, span, size, change, detail)

    def _state(self, version: int) -> State:
        state = self._states.get(version)
        if state is None:
            before = self._states.get(version - 1)
            if before is None:
                state = self._load_state(version)
            else:
                state = self._next_state(version, before)
            self._states.add(version, state)
        return state

    def _next_state(self, version: int, before: State) -> State:
        actions = self._log.read(version)
        if actions.protocol:
            self._opened(version)  # refuses features that it does not have
        return before if actions.metadata is None else State(version, actions.metadata)

    def _load_state(self, version: int) -> State:
        opened = self._opened(version)
        metadata = opened.metadata()
        return State(
            version,
            {
                "configuration": metadata.configuration,
                "schemaString": opened.schema().to_json(),
                "partitionColumns": metadata.partition_columns,
            },
        )

    def _opened(self, version: int) -> Opened:
        try:
            return Opened(
                self._location, version=version, storage_options=self._storage
            )
        except DeltaError as error:
            what = f"version {version} of the table cannot be read: "
            refused = FormatRefused(what + str(error).splitlines()[0])
            raise store_failure(error, self._location) or refused from error
