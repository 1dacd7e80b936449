"""Housekeeping of a topic: snapshots, merges, retention and the sweep.

Changes are first published as records, and files are removed afterwards, so that
commits, merges and readers never miss a file that their version refers to.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from streamfactory.arrowlog.disk.filestage import sweep_attempts
from streamfactory.arrowlog.disk.format_lookup import format_named
from streamfactory.arrowlog.disk.index import (
    PART_SCHEMA,
    Part,
    dead_share,
    merge_parts,
    part_rows,
)
from streamfactory.arrowlog.disk.loading import load_snapshot
from streamfactory.arrowlog.disk.merging import choose, merge
from streamfactory.arrowlog.disk.names import (
    PART,
    SEGMENT,
    TEMPORARY,
    new_part,
    record_name,
    records,
    snapshot_name,
    snapshots,
)
from streamfactory.arrowlog.disk.segments import RollingWriter
from streamfactory.arrowlog.disk.storage import failed
from streamfactory.spi import CorruptData, StorageFailed

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from streamfactory.arrowlog.disk.journal import Journal
    from streamfactory.arrowlog.disk.records import Record, Segment
    from streamfactory.arrowlog.disk.segments import SegmentReader
    from streamfactory.arrowlog.disk.settings import Settings
    from streamfactory.arrowlog.disk.state import State

_SWEEP_EVERY: Final = 3600.0
"""Seconds between two sweeps of one process."""
_TORN_SECONDS: Final = 3600.0
"""Seconds after which a temporary file in ``log`` is considered abandoned."""
STAGED_SECONDS: Final = 24 * 3600.0
"""Seconds after which a staged file is abandoned: longer than any epoch takes."""


class Housekeeper:
    """Keeps one topic small. Thread-safe.

    Args:
        journal: The records of the topic.
        segments: Reads segments to merge.
        settings: Settings of segments and merges.
        tidy: Sweeps files outside the topic; called with the topic's sweep.
    """

    def __init__(
        self,
        journal: Journal,
        segments: SegmentReader,
        settings: Settings,
        *,
        tidy: Callable[[], None] | None,
    ) -> None:
        self._journal = journal
        self._storage = journal.storage
        self._segments = segments
        self._settings = settings
        self._tidy = tidy
        self._merging = threading.Lock()
        self._swept_at = time.monotonic()

    def after_commit(self) -> None:
        """Run what is due, at a small amortised cost."""
        # The state of this commit is recent enough; reading the storage costs more.
        state = self._journal.known
        if choose(state, self._settings) or state.is_snapshot_due:
            with self._alone() as alone:
                if alone:
                    self._merge_all()
                    self.snapshot(early=False)
        if time.monotonic() - self._swept_at >= _SWEEP_EVERY:
            self.sweep()

    def tidy_up(self) -> None:
        """Run all housekeeping now."""
        with self._alone() as alone:
            if alone:
                self._merge_all(everything=True)
        self.sweep()
        self.snapshot()

    # --- deletion of old rows ---------------------------------------------------

    def truncate(self, before: Mapping[int, int]) -> None:
        """Delete the rows before these offsets."""
        removed: dict[str, int] = {}

        def build(state: State) -> Record | None:
            self._journal.known_with(*before)
            moved = {
                partition: min(offset, state.latest[partition])
                for partition, offset in before.items()
                if min(offset, state.latest[partition]) > state.earliest[partition]
            }
            if not moved:
                return None
            removed.clear()
            removed.update(let_go(state, moved))
            return self._journal.record(state, earliest=moved, removed=removed)

        if self._journal.publish(build):
            self._remove(removed)

    # --- merging ----------------------------------------------------------------

    @contextlib.contextmanager
    def _alone(self) -> Iterator[bool]:
        """Whether no other thread is merging, which prevents others meanwhile."""
        alone = self._merging.acquire(blocking=False)
        try:
            yield alone
        finally:
            if alone:
                self._merging.release()

    def _merge_all(self, *, everything: bool = False) -> None:
        while True:
            state = self._journal.refreshed()
            files = choose(state, self._settings, everything=everything)
            if files is None or not self._merge(files):
                return

    def _merge(self, files: Sequence[str]) -> bool:
        """Merge some segments; False if another process has merged them."""
        state = self._journal.refreshed()
        if not _are_separate(state, files):
            return False
        runs = state.index.runs(files)
        small = {name: state.small[name] for name in files if name in state.small}
        level = max((one.level for one in small.values()), default=0) + 1
        removed = {name: small[name].size if name in small else 0 for name in files}
        with contextlib.suppress(FileNotFoundError):
            form = format_named(state.segment_format)
            writer = RollingWriter(self._storage, state.schema, self._settings, form)
            merged = merge(self._segments, writer, runs, state.earliest, level)
            self._storage.settle("data")

            def build(state: State) -> Record | None:
                if not _are_separate(state, files):
                    return None
                return self._journal.record(state, segments=merged, removed=removed)

            try:
                if self._journal.publish(build):
                    self._remove(small)
                    return True
            except StorageFailed:  # not published, unless the record exists
                self._abandon(merged)
                raise
            self._abandon(merged)
        return False

    def _abandon(self, merged: Iterable[Segment]) -> None:
        """Remove merged files that were not published."""
        index = self._journal.refreshed().index
        names = [one.name for one in merged if not index.has(one.name)]
        self._storage.remove(names)

    def _remove(self, names: Iterable[str]) -> None:
        """Remove files that a record has released.

        If a power failure could undo that record, the next snapshot removes them: rows
        before a lost epoch are never lost with it.
        """
        if not self._storage.lazy:
            self._storage.remove(names)

    # --- snapshots --------------------------------------------------------------

    def snapshot(self, *, early: bool = True) -> None:
        """Write a snapshot of the known state, and remove what it replaces.

        Args:
            early: Also if none is due; another thread may have written it.
        """
        with self._journal.publishing:
            known = self._journal.refreshed().snapshot
            if snapshots(self._storage.names("log"))[-1:] > [known]:
                self._journal.reload()  # its parts, not those that it replaced
            state = self._journal.refreshed()
            self._finish(state)
            if state.version == state.snapshot or not (early or state.is_snapshot_due):
                return
            name = snapshot_name(state.version)
            parts, written = self._parts(state)
            self._storage.settle("index")
            data = state.to_snapshot(parts).encode()
            if not self._storage.publish(name, data):
                self._storage.remove(written)
            elif self._secured(name, parts):
                self._storage.remove(state.fresh)
            self._journal.reload()
            self._clean()

    def _finish(self, state: State) -> None:
        """Remove what a kill may have left of the previous snapshot."""
        parts = [part.name for part in state.index.parts]
        if state.carried:
            with contextlib.suppress(FileNotFoundError):
                self._storage.secure([*parts, snapshot_name(state.snapshot)])
                self._storage.remove(state.carried)

    def _secured(self, name: str, parts: Sequence[str]) -> bool:
        """Sync a snapshot; withdraw it if its parts were removed."""
        try:
            for part in parts:
                self._storage.size(part)
            self._storage.secure([*parts, name])
        except FileNotFoundError:
            # Other processes wrote two snapshots meanwhile, and removed old parts.
            self._storage.remove([name])
            return False
        return True

    def _parts(self, state: State) -> tuple[list[str], list[str]]:
        """Return the parts of the next snapshot, and those written for it.

        Each is at least twice as long as the next one: there are few, and each row is
        rewritten a logarithmic number of times.
        """
        floor = state.floor
        recent = state.index.recent()
        parts = [*state.index.parts, *([_unnamed(part_rows(recent))] if recent else [])]
        out: list[Part] = []
        for part in parts:
            out.append(part)
            while len(out) > 1 and 2 * len(out[-1]) > len(out[-2]):
                both = out[-2:]
                out[-2:] = [_unnamed(merge_parts(both, floor))]
        out = [
            _unnamed(merge_parts([part], floor))
            if dead_share(part, floor) >= 0.5
            else part
            for part in out
        ]
        names, written = [], []
        for part in out:
            if len(part):
                name = part.name or self._write(part)
                names.append(name)
                if not part.name:
                    written.append(name)
        return names, written

    def _write(self, part: Part) -> str:
        name = new_part()
        blob = self._storage.create(name)
        try:
            with pa.ipc.new_file(blob.sink, PART_SCHEMA) as writer:
                writer.write_batch(part.rows)
            blob.finish()
        except BaseException as error:
            blob.abandon()
            if isinstance(error, OSError):
                place = f"{self._storage.location}/{name}"
                raise failed(place, error) from error
            raise
        return name

    def _clean(self) -> None:
        """Remove records and snapshots that two newer snapshots replace.

        The oldest are removed first, and the record of the older snapshot is kept: by
        it, readers of the topic detect that records were removed.
        """
        names = self._storage.names("log")
        taken = {version: self._parts_of(version) for version in snapshots(names)}
        good = [version for version, parts in taken.items() if parts is not None]
        if len(good) < 2:
            return
        oldest = good[-2]
        kept = self._used(parts for v, parts in taken.items() if v >= oldest)
        unused = self._used(parts for v, parts in taken.items() if v < oldest) - kept
        old = [record_name(version) for version in records(names) if version < oldest]
        self._storage.remove(old)
        self._storage.remove(snapshot_name(v) for v in taken if v < oldest)
        self._storage.remove(unused)

    def _parts_of(self, version: int) -> set[str] | None:
        """Return the parts of a snapshot; None if it is missing or damaged."""
        try:
            return set(load_snapshot(self._storage, version).parts)
        except (FileNotFoundError, CorruptData):
            return None

    def _used(self, parts: Iterable[set[str] | None]) -> set[str]:
        return {name for some in parts for name in some or ()}

    # --- the sweep --------------------------------------------------------------

    def sweep(self) -> None:
        """Remove staged files that were neither committed nor aborted for a day."""
        self._swept_at = time.monotonic()
        aged = set(self._aged("data", SEGMENT))
        swept: dict[str, int] = {}

        def build(state: State) -> Record | None:
            swept.clear()
            if aged:
                left = aged - state.index.files() - set(state.removed)
                swept.update(dict.fromkeys(left, 0))
            return self._journal.record(state, removed=swept) if swept else None

        if self._journal.publish(build):
            self._storage.remove(swept)
        self._sweep_index()
        sweep_attempts(self._storage, STAGED_SECONDS)
        if self._tidy is not None:
            self._tidy()

    def _sweep_index(self) -> None:
        taken = snapshots(self._storage.names("log"))
        kept = self._used(self._parts_of(version) for version in taken)
        self._storage.remove(set(self._aged("index", PART)) - kept)
        logs = self._storage.ages("log")
        torn = [name for name, age in logs.items() if age >= _TORN_SECONDS]
        self._storage.remove(f"log/{n}" for n in torn if TEMPORARY.fullmatch(n))

    def _aged(self, folder: str, pattern: re.Pattern[str]) -> list[str]:
        """Return a folder's files that were neither committed nor aborted for a day."""
        found = [
            f"{folder}/{name}"
            for name, age in self._storage.ages(folder).items()
            if age >= STAGED_SECONDS
        ]
        return [name for name in found if pattern.fullmatch(name)]


def _are_separate(state: State, files: Iterable[str]) -> bool:
    """Whether no other process has merged or removed segments."""
    return all(name in state.small or name in state.inline for name in files)


def let_go(state: State, moved: Mapping[int, int]) -> dict[str, int]:
    """Return segments that are not needed after earliest has moved."""
    before = state.floor
    after = before.copy()
    for partition, offset in moved.items():
        after[partition] = max(after[partition], offset)
    gone = state.index.released(before, after) - set(state.removed)
    small, inline = state.small, state.inline

    def size(name: str) -> int:
        return small[name].size if name in small else int(name not in inline)

    return {name: size(name) for name in sorted(gone)}


def _unnamed(rows: pa.RecordBatch) -> Part:
    return Part("", rows)
