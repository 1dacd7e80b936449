"""Reads the stream of a table: a snapshot, then the changes of each commit."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, final

from streamfactory.spi import BatchState, Fetched, PartitionLevelConsumer
from streamfactory.tables.columns import NAMES, with_columns
from streamfactory.tables.phase import Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streamfactory.spi import FetchLimits
    from streamfactory.tables.phase import Found
    from streamfactory.tables.table import Table


@final
class TableConsumer(PartitionLevelConsumer):
    """Reads one table from any offset. Holds one chunk of rows at a time.

    Args:
        table: The table; opened on first use.
        fields: Columns wanted; None means all.
        added: Whether the change columns are part of the stream.
        poll: Seconds between two looks for a new commit.
        rows: Rows of a chunk at the most.
    """

    def __init__(
        self,
        table: Callable[[], Table],
        fields: Sequence[str] | None,
        *,
        added: bool,
        poll: float,
        rows: int,
    ) -> None:
        self._table = table
        wanted = NAMES if fields is None else fields
        self._added = frozenset(NAMES).intersection(wanted) if added else frozenset()
        own = None if fields is None else [f for f in fields if f not in self._added]
        self._fields = own
        self._poll = poll
        self._rows = rows
        self._woken = threading.Event()
        self._phase: Phase | None = None
        self._identity: str | None = None
        self._recreated = False
        self._end: int | None = None
        """Where no commit was when last looked for one."""
        self._looked = 0.0

    def fetch_messages(
        self, start: int, end: int | None, limits: FetchLimits
    ) -> Fetched:
        deadline = time.monotonic() + limits.timeout
        table, at = self._table(), start
        while True:
            phase = self._phase_at(table, at)
            if self._recreated:
                self._leave()
                self._recreated = False
                return Fetched(None, start, incarnation=self._identity)
            if phase is None:
                self._wait(deadline)
                return self._empty(at, start, BatchState.CAUGHT_UP)
            found = phase.next_rows()
            if found is not None:
                return self._answer(found, start)
            at = phase.behind
            self._leave()
            over = end is not None and at >= end
            if over or self._woken.is_set() or time.monotonic() >= deadline:
                self._woken.clear()
                return self._empty(at, start, None)

    def wake(self) -> None:
        self._woken.set()

    def close(self) -> None:
        self._leave()

    def _phase_at(self, table: Table, at: int) -> Phase | None:
        """The open phase, or the one that an offset is in; None at the end."""
        if self._phase is not None and self._phase.at == at:
            return self._phase
        self._leave()
        if at == self._end and time.monotonic() < self._looked + self._poll:
            return None
        place = table.layout.place(at)
        try:
            commit = table.at_or_after(place.commit)
            if commit is None:
                self._end, self._looked = at, time.monotonic()
                return None
            self._end = None
            if commit.ordinal != place.commit:
                place = table.layout.place(table.layout.changes(commit.ordinal))
            self._phase = Phase(table, commit, place, self._fields, self._rows)
        finally:
            # Looked up behind the commit: what was listed is of this table.
            self._identify(table.identity())
        return self._phase

    def _identify(self, identity: str) -> None:
        self._recreated = self._identity not in (None, identity)
        self._identity = identity

    def _leave(self) -> None:
        phase, self._phase = self._phase, None
        if phase is not None:
            phase.close()

    def _wait(self, deadline: float) -> None:
        until = min(deadline, self._looked + self._poll)
        self._woken.wait(max(0.0, until - time.monotonic()))
        self._woken.clear()

    def _answer(self, found: Found, start: int) -> Fetched:
        rows = with_columns(found.chunk, found.piece, found.commit, self._added)
        offsets = found.offsets
        if offsets is None and found.start != start:
            import pyarrow as pa

            offsets = pa.arange(found.start, found.next_offset)
        return Fetched(
            rows,
            found.next_offset,
            offsets=offsets,
            held_from=start,
            incarnation=self._identity,
        )

    def _empty(self, at: int, start: int, state: BatchState | None) -> Fetched:
        return Fetched(
            None, at, state=state, held_from=start, incarnation=self._identity
        )
