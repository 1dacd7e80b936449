"""A Hudi table: commits, pieces and rows."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from typing import TYPE_CHECKING, Any, Final, final

import pyarrow as pa

from streamfactory.backends.hudi.avro import arrow_schema
from streamfactory.backends.hudi.evolution import Evolution
from streamfactory.backends.hudi.merging import KEY
from streamfactory.backends.hudi.rows import SliceRows
from streamfactory.backends.hudi.slices import (
    Slice,
    View,
    file_groups,
    written_at,
)
from streamfactory.backends.hudi.stats import effects
from streamfactory.backends.hudi.timeline import Timeline
from streamfactory.spi import (
    ConfigError,
    DataLossError,
    OffsetOutOfRange,
    SchemaUnknown,
)
from streamfactory.tables import (
    DELETE,
    INSERT,
    START_REMEDY,
    UPDATE_AFTER,
    Chunk,
    Commit,
    FileColumns,
    Layout,
    Match,
    Oldest,
    Piece,
    PieceGone,
    StreamColumns,
    Table,
    by_name,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterator, Sequence

    from streamfactory.backends.hudi.instants import Instant
    from streamfactory.backends.hudi.merging import Merger
    from streamfactory.backends.hudi.slices import FileGroup
    from streamfactory.backends.hudi.stats import Effects
    from streamfactory.spi import StreamConfig
    from streamfactory.tables import TableFiles

META: Final = ("_hoodie_commit_time", "_hoodie_commit_seqno", KEY)
META_FIELDS: Final = [
    pa.field(name, pa.string()) for name in (*META, "_hoodie_partition_path")
]
_EMPTY: Final = Commit(0, "0", None)
"""Stands for the table before its first commit."""
_IDS: Final = b"hudi.column.ids"
"""Key of the metadata of a schema: the ids of its columns, as a commit states them."""
_FRESH: Final = 1.0
"""Seconds."""


@final
class HudiTable(Table):
    """See `Table`.

    Args:
        config: Names the location and the columns.
        files: Of the table.
        merger: Of slices with log files.
    """

    layout = Layout(row_bits=30)

    def __init__(self, config: StreamConfig, files: TableFiles, merger: Merger) -> None:
        self._meta: bool = config["meta.columns"]
        self._files = files
        self._slices = SliceRows(files, merger)
        most: int = config["log.max.bytes"]
        self._timeline = Timeline(files, most)
        self._evolution = Evolution(
            files, self._slices, self._timeline, self._done, most
        )
        self.columns = StreamColumns(by_name)
        self._lock = threading.Lock()
        self._seen: View | None = None
        self._seen_at = 0.0
        self._whole_of: tuple[tuple[Any, Any], View | None] = ((None, None), None)
        """The view with archived instants, and what it was made of."""

    def identity(self) -> str:
        properties = self._timeline.properties()
        # Hudi gives a table no id of its own. The name of the database is added later
        # by some writers.
        names = ("hoodie.table.name", "hoodie.table.type")
        return "/".join(properties.get(name, "") for name in names)

    def newest(self) -> Commit:
        found = self._look()
        return self._commit(found, len(found.commits) - 1) if found.commits else _EMPTY

    def oldest(self) -> Oldest:
        found = self._look()
        first = found.ordinals[0] if found.commits else 0
        return Oldest(first, changes=True, created=True)

    def at_or_after(self, ordinal: int) -> Commit | None:
        found = self._look(ordinal)
        certain = found.numbers(ordinal) or found.numbers(ordinal - 1)
        if found.savepoints or not certain:
            # The commit that follows may be archived already.
            found = self._whole(found)
        index = bisect_left(found.ordinals, ordinal)
        if found.commits and not (
            ordinal in found.index
            or ordinal - 1 in found.index
            or ordinal <= _EMPTY.ordinal + 1
        ):
            resume = (*found.ordinals, found.ordinals[-1] + 1)[index]
            what = "the commit before this offset is neither in the timeline of the "
            what += (
                "table nor in its archive: it was rolled back, or the archive is cut"
            )
            raise DataLossError(
                what,
                offset=self.layout.changes(ordinal),
                resume=self.layout.changes(resume),
                remedy=OffsetOutOfRange.default_remedy,
            )
        return self._commit(found, index) if index < len(found.commits) else None

    def count_commits(self, start: int, end: int) -> int:
        found = self._look()
        if found.commits and start < found.ordinals[0]:
            found = self._whole(found)
        ordinals = found.ordinals
        return bisect_left(ordinals, end) - bisect_left(ordinals, start)

    def at_time(self, timestamp_ms: int) -> Commit | None:
        found = self._look()
        for index in range(len(found.commits)):
            commit = self._commit(found, index)
            if commit.time_ms is not None and commit.time_ms >= timestamp_ms:
                return commit
        return None

    def ordinal_of(self, commit: str) -> int:
        found = self._look()
        for ordinal, instant in zip(found.ordinals, found.commits, strict=True):
            if instant.time == commit:
                return ordinal
        what = f"start.commit is {commit[:40]!r}, which is no commit in the timeline"
        if found.commits:
            first, last = found.commits[0].time, found.commits[-1].time
            what += f": it has {len(found.commits)}, from {first} to {last}"
        else:
            what += ": it has none yet"
        raise ConfigError(what, remedy=START_REMEDY)

    def schema(self) -> pa.Schema:
        return self._opened()

    def snapshot(self, commit: Commit) -> Sequence[Piece]:
        if commit.ordinal == _EMPTY.ordinal:
            return []
        found = self._holding(commit.ordinal)
        index = self._index(found, commit)
        moment = found.moment(index)
        replaced = self._replaced(found, index)
        held: dict[tuple[str, str], Slice] = {}
        for folder, group in self._groups(""):
            files = moment.slice(folder, group)
            if files is not None and (folder, group.id) not in replaced:
                held[folder, group.id] = files
        self._check_held(found, index, held)
        # A compaction changes the times of files, but neither groups nor rows.
        order = sorted(held)
        if not found.merge_on_read:
            order.sort(key=lambda key: written_at(held[key]))
        return [self._slice_piece(found, index, held[key], INSERT) for key in order]

    def changes(self, commit: Commit) -> Sequence[Piece]:
        found = self._holding(commit.ordinal)
        index = self._index(found, commit)
        done = self._effects(found, index)
        if done.reorganized:
            return []
        pieces = [
            Piece(
                one.path,
                one.span,
                change=UPDATE_AFTER,
                detail={"ordinal": commit.ordinal, "written": one},
            )
            for one in done.written
            if one.span
        ]
        # Behind the others: the rows of replaced files are counted, and these may be
        # cleaned.
        for folder, group in done.replaced:
            files = self._slices.find(found.moment(index - 1), folder, group)
            if files is None:
                gone = f"{folder}/{group}".lstrip("/")
                pieces.append(Piece(gone, 1, change=DELETE))
            else:
                pieces.append(self._slice_piece(found, index - 1, files, DELETE))
        return pieces

    def has_changes(self, commit: Commit) -> bool:
        found = self._holding(commit.ordinal)
        done = self._effects(found, self._index(found, commit))
        if done.reorganized:
            return False
        return bool(done.replaced or any(one.span for one in done.written))

    def read(
        self, piece: Piece, skip: int, fields: Sequence[str] | None, rows: int
    ) -> Generator[Chunk]:
        detail: Any = piece.detail
        if detail is None:
            what = f"file group {piece.path!r} does not exist"
            raise PieceGone(what)
        found = self._holding(detail["ordinal"])
        index = found.index.get(detail["ordinal"])
        if index is None and detail["ordinal"] != _EMPTY.ordinal:
            what = f"commit {detail['ordinal']} is no longer in the timeline"
            raise PieceGone(what)
        index = -1 if index is None else index
        opened = self._opened()
        later = self._schema_at(found, max(index, 0))
        schema = self.columns.wanted(detail["ordinal"], later, fields)
        names = schema.names
        table = (opened.metadata or {}).get(_IDS)
        if table is not None:
            self._evolution.check(found, index, piece, table.decode(), names)
        if "written" in detail:
            chunks = self._slices.changed(found, index, detail["written"], names, rows)
        else:
            files = Slice(detail["base"], detail["logs"])
            batches = self._slices.rows(found, index, files, names, skip, rows)
            chunks = ((first, batch, None) for first, batch in batches)
        columns, given = None, None
        for first, batch, kinds in chunks:
            drop = max(0, skip - first)
            if drop >= batch.num_rows:
                continue
            if columns is None or batch.schema != given:  # the files before had others
                given = batch.schema
                columns = FileColumns(given, schema, Match(), {}, piece.path)
            yield Chunk(
                columns.convert(batch.slice(drop)),
                first + drop,
                changes=None if kinds is None else kinds.slice(drop),
            )

    def _opened(self) -> pa.Schema:
        """The columns as of when the stream was opened."""
        found = self._look()
        last = len(found.commits) - 1
        newest = self._commit(found, last).ordinal if found.commits else 0
        return self.columns.opened(
            self.identity(), newest, lambda: self._schema_at(found, last)
        )

    def _slice_piece(self, found: View, index: int, files: Slice, change: str) -> Piece:
        detail = {
            "ordinal": found.ordinals[index] if index >= 0 else _EMPTY.ordinal,
            "base": files.base,
            "logs": files.logs,
        }
        path = files.base or files.logs[-1]
        span = self._count(found, index, files)
        return Piece(path, span, change=change, detail=detail)

    def _count(self, found: View, index: int, files: Slice) -> int:
        try:
            return self._slices.count(found, index, files)
        except PieceGone as error:
            raise self._cleaned(found, index) from error

    def _look(self, ordinal: int | None = None) -> View:
        """The timeline as it is now.

        With an ordinal: as it was at most a second ago, if it had that commit then. So
        a reader that is many commits behind does not list them for each one.
        """
        with self._lock:
            seen, at = self._seen, self._seen_at
        known = seen is not None and ordinal in seen.index
        if seen is not None and known and time.monotonic() < at + _FRESH:
            return seen
        at = time.monotonic()
        properties = self._timeline.properties()
        instants, savepoints = self._timeline.listing(properties)
        if seen is None or not seen.shows(instants, properties, savepoints=savepoints):
            seen = View(instants, properties, savepoints=savepoints)
        with self._lock:
            self._seen, self._seen_at = seen, at
        return seen

    def _holding(self, ordinal: int) -> View:
        """The timeline with the commit of an ordinal, if it has one.

        With the archived part where the commit is no longer in the active one.
        """
        found = self._look(ordinal)
        certain = found.numbers(ordinal) or ordinal == _EMPTY.ordinal
        return found if certain else self._whole(found)

    def _whole(self, found: View) -> View:
        """A view with the archived instants before its own, looked up now."""
        # In this order: Hudi archives an instant before it removes it.
        archived = self._timeline.archived(found.properties)
        with self._lock:
            parts, whole = self._whole_of
        if whole is None or parts[0] is not found or parts[1] is not archived:
            listed = {instant.time for instant in found.all}
            older = [one for one in archived if one.time not in listed]
            instants = sorted([*older, *found.all], key=lambda i: (i.at, i.time))
            whole = View(instants, found.properties, whole=True)
            with self._lock:
                self._whole_of = ((found, archived), whole)
        return whole

    def _index(self, found: View, commit: Commit) -> int:
        index = found.index.get(commit.ordinal)
        if index is None:
            what = f"commit {commit.id} is no longer in the timeline of the table"
            raise OffsetOutOfRange(what)
        return index

    def _commit(self, found: View, index: int) -> Commit:
        instant = found.commits[index]
        time_ms = round(instant.at.timestamp() * 1000)
        return Commit(found.ordinals[index], instant.time, time_ms)

    def _effects(self, found: View, index: int) -> Effects:
        return self._done(found, found.commits[index])

    def _done(self, found: View, instant: Instant) -> Effects:
        for one in self._places(found, instant):
            try:
                return effects(one, self._timeline.metadata(one))
            except FileNotFoundError:
                continue  # archived since it was listed, or rolled back
        what = f"commit {instant.time} is no longer in the timeline of the table"
        raise OffsetOutOfRange(what)

    def _places(self, found: View, instant: Instant) -> Iterator[Instant]:
        """An instant as it was listed, then as the archive has it now."""
        yield instant
        for one in self._timeline.archived(found.properties):
            if one.time == instant.time:
                yield one

    def _schema_at(self, found: View, index: int) -> pa.Schema:
        """The columns as of a commit: of the last one up to it that states them."""
        for instant in reversed(found.commits[: index + 1]):
            done = self._done(found, instant)
            if done.schema is not None:
                schema = arrow_schema(done.schema)
                own = [f for f in schema if not f.name.startswith("_hoodie_")]
                ids = None if done.ids is None else {_IDS: done.ids}
                fields = [*(META_FIELDS if self._meta else ()), *own]
                return pa.schema(fields, metadata=ids)
        what = "no commit of the table states its columns"
        raise SchemaUnknown(what)

    def _groups(self, folder: str) -> Iterator[tuple[str, FileGroup]]:
        """The file groups in a folder and below it, in the order of their names."""
        names, folders = self._files.entries(folder)
        for group in file_groups(names).values():
            yield folder, group
        for name in folders:
            if not name.startswith("."):
                yield from self._groups(f"{folder}/{name}" if folder else name)

    def _replaced(self, found: View, index: int) -> set[tuple[str, str]]:
        """The file groups that are replaced as of a commit."""
        return {
            key
            for instant in found.commits[: index + 1]
            if instant.action == "replacecommit"
            for key in self._done(found, instant).replaced
        }

    def _cleaned(self, found: View, index: int) -> DataLossError:
        what = f"files of the table as of commit {found.commits[index].time} were "
        what += "cleaned"
        resume = self.layout.changes(found.ordinals[index] + 1)
        return DataLossError(
            what, resume=resume, remedy=OffsetOutOfRange.default_remedy
        )

    def _check_held(
        self, found: View, index: int, held: Collection[tuple[str, str]]
    ) -> None:
        """Refuse a snapshot of which later commits show that files were cleaned."""
        commit = found.commits[index]
        created: set[tuple[str, str]] = set()
        for later in found.all[found.all.index(commit) + 1 :]:
            done = self._done(found, later)
            existed = [key for key in done.replaced if key not in created]
            for one in done.written:
                key = (one.partition, one.id)
                if one.base and one.new:
                    created.add(key)
                elif one.base and key not in created:
                    existed.append(key)
            if any(key not in held for key in existed):
                raise self._cleaned(found, index)
