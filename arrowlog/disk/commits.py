"""Group commit: one record commits all epochs that are waiting.

While one thread writes a record, commits of other threads queue up; the next record
contains them all, so many writers with small epochs cost as much as one.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from streamfactory.arrowlog.checks import no_such_partition
from streamfactory.arrowlog.decoding import InvalidValue, text
from streamfactory.arrowlog.disk.housekeeping import let_go
from streamfactory.arrowlog.disk.names import SEGMENTS
from streamfactory.arrowlog.disk.records import (
    SEALED_BYTES,
    Record,
    Run,
    Segment,
    WriterState,
    decode_writer,
)
from streamfactory.arrowlog.disk.staging import StagedFile
from streamfactory.arrowlog.values import Committed
from streamfactory.arrowlog.writers import committed_before
from streamfactory.spi import MisuseError, StreamError, TopicNotFound, WriterFenced

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from streamfactory.arrowlog.disk.journal import Journal
    from streamfactory.arrowlog.disk.state import State
    from streamfactory.arrowlog.values import Epoch
    from streamfactory.spi import LastCommit

_GROUPED_BYTES: Final = SEALED_BYTES // 4
"""Approximate maximum bytes of a record with several commits."""

logger = logging.getLogger("streamfactory")


@dataclass(slots=True, eq=False)
class _Request:
    """One epoch that waits for its commit."""

    epoch: Epoch
    files: Sequence[StagedFile]
    position: str | None
    """Position of its source, as JSON text."""
    done: bool = False
    committed: Committed = field(default_factory=Committed)
    error: BaseException | None = None

    @classmethod
    def of(cls, epoch: Epoch) -> _Request:
        position = None if epoch.position is None else epoch.position.to_json()
        return cls(epoch, StagedFile.of(epoch.attempts), position)

    @property
    def weight(self) -> int:
        """Approximate bytes in a record."""
        batches = sum(len(run[2]) for file in self.files for run in file.runs)
        runs = sum(len(file.runs) for file in self.files)
        return 8 * batches + 96 * runs + len(self.position or "")

    def written(self, at: int) -> WriterState:
        """The state of the writer after the epoch."""
        epoch, summary = self.epoch, self.epoch.summary
        stored = (epoch.number, summary.rows, summary.sums, self.position)
        return WriterState(epoch.instance, at, *stored)

    def outcome(self) -> Committed:
        if self.error is not None:
            raise self.error
        return self.committed


@dataclass(slots=True)
class _Draft:
    """A record of several commits while it is built."""

    latest: list[int]
    at: int
    """Append time of its rows."""
    earliest: dict[int, int] = field(default_factory=dict)
    writers: dict[str, WriterState] = field(default_factory=dict)
    segments: list[Segment] = field(default_factory=list)
    appended: bool = False


class CommitQueue:
    """The commits of one process to one topic. Thread-safe.

    Args:
        journal: The records of the topic.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._lock = threading.Lock()
        self._waiting: list[_Request] = []

    def commit(self, epoch: Epoch) -> Committed:
        """See `Log.commit`."""
        request = _Request.of(epoch)
        with self._lock:
            self._waiting.append(request)
        with self._journal.publishing:
            if not request.done:
                self._lead()
        return request.outcome()

    def claim(self, writer: str, instance: str) -> LastCommit | None:
        """As `Log.claim`."""
        held: list[LastCommit | None] = [None]

        def build(state: State) -> Record | None:
            known = state.writers.get(writer)
            held[0] = None if known is None else known.last()
            if known is not None and known.owner == instance:
                return None
            now = self._journal.time_of(state)
            claimed = replace(known or WriterState("", now), owner=instance, at=now)
            claims = {writer: _checked(writer, claimed)}
            return self._journal.record(state, writers=claims)

        self._journal.publish(build)
        return held[0]

    def discard(self, names: Collection[str]) -> None:
        """Remove staged files that are not committed.

        They are first removed by a record, so that a concurrent commit of them fails.
        """
        gone: dict[str, int] = {}

        def build(state: State) -> Record | None:
            gone.clear()
            gone.update({n: 0 for n in names if not state.index.has(n)})
            fresh = {n: 0 for n in gone if n not in state.removed}
            return self._journal.record(state, removed=fresh) if fresh else None

        if not names:
            return
        try:
            self._journal.publish(build)
        except TopicNotFound:  # it was deleted: they cannot be committed any more
            gone.update(dict.fromkeys(names, 0))
        self._journal.storage.remove(gone)

    def _lead(self) -> None:
        """Commit all waiting epochs."""
        with self._lock:
            requests, self._waiting = self._waiting, []
        for group in _grouped(requests):
            self._commit(group)

    def _commit(self, requests: Sequence[_Request]) -> None:
        ended = False
        try:
            # Staged files must be durable before the record that refers to them.
            if any(request.files for request in requests):
                self._journal.storage.settle("data")
            self._journal.publish(lambda state: self._build(state, requests))
            if any(request.committed.held for request in requests):
                # Its publisher may have been killed before its name was durable.
                self._journal.storage.settle("log")
        except BaseException as error:  # noqa: BLE001 - raised in every waiting thread
            ended = isinstance(error, TopicNotFound)
            for request in requests:
                request.error = request.error or error
        finally:
            for request in requests:
                request.done = True
        # Of repeated epochs, except files that the same epoch has committed.
        late = [f.name for r in requests if r.committed.held or ended for f in r.files]
        try:
            self.discard(late)
        except (StreamError, OSError) as error:  # the sweep removes them later
            logger.warning("%s: discarding: %s", self._journal.name, error)

    def _build(self, state: State, requests: Sequence[_Request]) -> Record | None:
        draft = _Draft(list(state.latest), self._journal.time_of(state))
        for request in requests:
            request.committed, request.error = Committed(), None
            try:
                request.committed = self._add(draft, state, request)
            except (MisuseError, WriterFenced, TopicNotFound) as error:
                request.error = error
        if not draft.appended:
            return None
        removed = {}
        if draft.earliest:
            removed = let_go(state, draft.earliest)
        return self._journal.record(
            state,
            at=draft.at,
            writers=draft.writers,
            earliest=draft.earliest,
            segments=draft.segments,
            removed=removed,
        )

    def _add(self, draft: _Draft, state: State, request: _Request) -> Committed:
        epoch, writer = request.epoch, request.epoch.writer
        written: dict[str, WriterState] = {}
        if writer is not None:
            known = draft.writers.get(writer, state.writers.get(writer))
            held = committed_before(epoch, known)
            if held is not None:
                return Committed(held)
            written[writer] = _checked(writer, request.written(draft.at))
        self._check_staged(draft, state, request)
        if epoch.replace:
            draft.earliest.update(enumerate(draft.latest))
        before = list(draft.latest)
        for file in request.files:
            draft.segments.append(_segment(file, draft.latest, draft.at))
        draft.writers.update(written)
        draft.appended = True
        spans = enumerate(map(range, before, draft.latest))
        return Committed(placed={partition: span for partition, span in spans if span})

    def _check_staged(self, draft: _Draft, state: State, request: _Request) -> None:
        taken = {segment.name for segment in draft.segments}
        for file in request.files:
            if file.name in taken or not self._there(state, file):
                msg = f"what attempt {file.attempt} staged no longer exists"
                raise MisuseError(msg, remedy="abort the epoch and write it again")
            if SEGMENTS[state.segment_format].fullmatch(file.name) is None:
                msg = f"attempt {file.attempt} staged {file.name}, but the segments of "
                msg += f"the topic are of the format {state.segment_format}"
                raise MisuseError(msg, remedy="abort the epoch and write it again")
            last = max((run[0] for run in file.runs), default=0)
            if last >= len(state.latest):
                raise no_such_partition(self._journal.name, last, len(state.latest))

    def _there(self, state: State, file: StagedFile) -> bool:
        """Whether a staged file is complete, and neither swept nor committed."""
        if file.name in state.removed or state.index.has(file.name):
            return False
        try:
            return self._journal.storage.size(file.name) == file.size
        except FileNotFoundError:
            return False


def _grouped(requests: Sequence[_Request]) -> Iterator[list[_Request]]:
    """Group requests by record, in order.

    A request that replaces all rows has a record of its own, and no record exceeds the
    maximum size.
    """
    group: list[_Request] = []
    weight = 0
    for request in requests:
        alone = request.epoch.replace or (group and group[-1].epoch.replace)
        weight += request.weight
        if group and (alone or weight > _GROUPED_BYTES):
            yield group
            group, weight = [], request.weight
        group.append(request)
    if group:
        yield group


def _checked(writer: str, state: WriterState) -> WriterState:
    """Check that a state can be read again, and return it.

    Raises:
        MisuseError: misuse; the format does not support it.
    """
    try:
        text(writer)
        return decode_writer(state.to_plain())
    except InvalidValue as error:
        msg = f"epoch {state.epoch} of writer {writer!r} cannot be stored: {error}"
        raise MisuseError(msg) from None


def _segment(file: StagedFile, latest: list[int], now: int) -> Segment:
    """Return a staged file with its offsets; advances ``latest``."""
    runs = []
    for partition, first_batch, batches, size in file.runs:
        base, rows = latest[partition], sum(batches)
        runs.append(
            Run(
                partition,
                base,
                rows,
                file.name,
                first_batch,
                tuple(batches),
                size,
                now,
                now,
            )
        )
        latest[partition] = base + rows
    return Segment(file.name, file.size, 0, file.full, tuple(runs))
