"""Commits epochs to tables, each once, whoever commits meanwhile."""

from __future__ import annotations

import time
import uuid
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Final, Protocol, final

from streamfactory.spi import (
    IncarnationChanged,
    LastCommit,
    SchemaMismatch,
    StreamCommitter,
    StreamTimeout,
    Summary,
    TopicNotFound,
    WriterFenced,
)
from streamfactory.spi.backoff import Backoff
from streamfactory.tables.evolving import is_grown
from streamfactory.tables.markers import Marker
from streamfactory.tables.merging import Merge, Replaced
from streamfactory.tables.staging import Staged
from streamfactory.tables.writable import Change, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from streamfactory.spi import CommitMessage, Position
    from streamfactory.tables.writable import Seen, WritableTable

_PATIENCE: Final = 60.0
"""Seconds in which a commit is tried again while others commit first."""
_BACKOFF: Final = Backoff(0.01, 1.0)


class TableFactory(Protocol):
    """What a committer needs of its producer factory."""

    key: Sequence[str]
    """Columns by which rows are written; none: rows are appended."""
    keeps_partitions: bool
    """Whether an epoch that replaces rows keeps those of partitions it has none of."""

    def table(self) -> WritableTable:
        """The table, opened by the first call."""

    def look(self) -> Seen:
        """The table as of now."""


@final
class TableCommitter(StreamCommitter):
    """Commits whole epochs to a table. See `StreamCommitter`."""

    def __init__(self, factory: TableFactory, writer_id: str | None) -> None:
        self._factory = factory
        self._writer_id = writer_id
        self._instance = uuid.uuid4().hex
        self._claimed = False
        self._tried: set[str] = set()
        """Attempts whose commit was tried: their files may belong to the table."""

    def commit(
        self,
        epoch: int,
        messages: Sequence[CommitMessage],
        source_position: Position | None = None,
    ) -> LastCommit | None:
        if not self._factory.key:
            return self._commit(epoch, messages, source_position, Kind.APPEND, _nothing)
        merge = self._merge(epoch, messages)

        def merged(seen: Seen) -> Replaced:
            return merge().replace(self._factory.table(), seen)

        return self._commit(epoch, messages, source_position, Kind.MERGE, merged)

    def replace(
        self,
        epoch: int,
        messages: Sequence[CommitMessage],
        source_position: Position | None = None,
    ) -> LastCommit | None:
        merge = self._merge(epoch, messages)

        def replaced(seen: Seen) -> Replaced:
            if self._factory.key:
                merge()  # refuses keys of two tasks
            table = self._factory.table()
            live = table.live(seen).files
            if self._factory.keeps_partitions:
                staged = _staged(messages)
                files = [file for one in staged for file in one.files]
                live = table.within(seen, live, files)
            return Replaced(removed=live)

        return self._commit(epoch, messages, source_position, Kind.REPLACE, replaced)

    def _merge(
        self, epoch: int, messages: Sequence[CommitMessage]
    ) -> Callable[[], Merge]:
        """Returns the keys of an epoch, read by the first call.

        Not of one that is committed: its files of keys were removed.
        """
        return cache(
            lambda: Merge(
                self._factory.table().storage,
                _staged(messages),
                self._factory.key,
                epoch,
            )
        )

    def _commit(
        self,
        epoch: int,
        messages: Sequence[CommitMessage],
        source_position: Position | None,
        kind: Kind,
        replaced_of: Callable[[Seen], Replaced],
    ) -> LastCommit | None:
        """Commit an epoch.

        Args:
            epoch: The epoch.
            messages: Of the tasks.
            source_position: Stored with it.
            kind: What it does to the table.
            replaced_of: Returns which files of the table the commit replaces.
        """
        staged = _staged(messages)
        summary = sum((message.summary for message in messages), Summary())
        marker = Marker(
            self._instance,
            epoch,
            None if source_position is None else source_position.to_json(),
            summary.rows,
            dict(summary.sums),
            tuple(one.attempt for one in staged),
        )
        table = self._factory.table()
        files = [file for one in staged for file in one.files]
        for _ in tries(f"epoch {epoch}"):
            seen = self._factory.look()
            held = self._held(seen, epoch)
            if held is not None and held.epoch is not None and held.epoch >= epoch:
                self.last()  # claims
                self._remove(staged, held)
                return held.last()
            for one in staged:
                check_staged(one, seen, table)
            replaced = replaced_of(seen)
            self._tried.update(marker.attempts)
            added, removed = [*files, *replaced.added], replaced.removed
            change = Change(added, removed, kind, self._writer_id, marker)
            if table.commit(seen, change):
                self._claimed = True
                break
            table.storage.remove([one.path for one in replaced.added])
        self._remove(staged, marker)
        return None

    def abort(self, epoch: int, messages: Sequence[CommitMessage]) -> None:
        held = None
        if self._writer_id is not None:
            try:
                seen = self._factory.look()
            except TopicNotFound:
                return  # and what was staged in it went with it
            held = self._factory.table().marker(seen, self._writer_id)
        self._remove(list(map(Staged.of, messages)), held or Marker("", epoch))

    def last(self) -> LastCommit | None:
        if self._writer_id is None:
            return None
        table, held = self._factory.table(), None
        for _ in tries(f"the claim of writer {self._writer_id!r}"):
            try:
                seen = self._factory.look()
            except TopicNotFound:
                return None
            held = table.marker(seen, self._writer_id)
            if self._claimed:  # once: an instance that was fenced stays fenced
                break
            claim = replace(held or Marker(""), instance=self._instance)
            change = Change(writer_id=self._writer_id, marker=claim)
            if table.commit(seen, change):
                self._claimed = True
                break
        return None if held is None else held.last()

    def _held(self, seen: Seen, epoch: int) -> Marker | None:
        """What the table keeps of this writer.

        Raises:
            WriterFenced: permanent; another instance has claimed it.
        """
        if self._writer_id is None:
            return None
        held = self._factory.table().marker(seen, self._writer_id)
        lost = held is None or held.instance != self._instance
        if self._claimed and lost:
            what = f"epoch {epoch}: another instance has claimed writer "
            raise WriterFenced(what + repr(self._writer_id))
        return held

    def _remove(self, staged: Sequence[Staged], held: Marker) -> None:
        """Remove files that belong to no commit, and those of keys; others are left."""
        for one in staged:
            paths = one.paths
            if one.attempt in {*held.attempts, *self._tried}:
                paths = [] if one.keys is None else [one.keys]
            self._factory.table().storage.remove(paths)


def _staged(messages: Sequence[CommitMessage]) -> list[Staged]:
    """What each attempt has staged, once."""
    return list({one.attempt: one for one in map(Staged.of, messages)}.values())


def _nothing(seen: Seen) -> Replaced:  # noqa: ARG001 - whatever the table has
    """Files that an append replaces."""
    return Replaced()


def tries(what: str) -> Iterator[None]:
    """One turn after the other, while others commit first.

    Raises:
        StreamTimeout: transient; it was tried for a minute.
    """
    until, failures = time.monotonic() + _PATIENCE, 0
    while time.monotonic() < until:
        time.sleep(_BACKOFF.pause(failures))
        yield
        failures += 1
    msg = f"{what}: other commits to the table came first for {_PATIENCE:g} s"
    raise StreamTimeout(msg, remedy="commit again")


def check_staged(staged: Staged, seen: Seen, table: WritableTable) -> None:
    """Refuse files that were written for another table, or for other columns.

    Columns that were added since, and may be null, are no obstacle, nor are fields
    within columns.

    Raises:
        IncarnationChanged: data_loss; the table was made again.
        SchemaMismatch: permanent; a column, or the partitions, were changed.
    """
    if staged.table != seen.identity:
        what = "the table was made again while it was written to"
        raise IncarnationChanged(what, expected=staged.table, found=seen.identity)
    names = {one.name for one in seen.partitions}
    if any(names != set(file.values) for file in staged.files):
        what = "the partitions of the table were changed while rows were written"
        raise SchemaMismatch(what, remedy="write the epoch again")
    if staged.columns == seen.columns:
        return
    before = {field.name: field for field in table.parse(staged.columns)}
    now = {field.name: field for field in seen.schema}
    for name in {**before, **now}:
        is_added = name not in before and now[name].nullable
        is_same = name in before and name in now and is_grown(before[name], now[name])
        if not is_added and not is_same:
            what = f"column {name!r} of the table was changed while rows were written"
            remedy = "write the epoch again: its rows are converted to the new columns"
            raise SchemaMismatch(what, remedy=remedy)
