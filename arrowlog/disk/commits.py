"""Group commit: one record commits all epochs that are waiting.

While one thread writes a record, commits of other threads queue up; the next record
contains them all, so many writers with small epochs cost as much as one.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Final

from streamfactory.arrowlog.carried import CarriedRows
from streamfactory.arrowlog.checks import no_such_partition
from streamfactory.arrowlog.decoding import InvalidValue, text
from streamfactory.arrowlog.disk.housekeeping import let_go
from streamfactory.arrowlog.disk.inline import inline_segments, write_segments
from streamfactory.arrowlog.disk.names import SEGMENTS
from streamfactory.arrowlog.disk.records import (
    INLINE,
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
    from collections.abc import Collection, Iterable, Iterator, Sequence

    import pyarrow as pa

    from streamfactory.arrowlog.disk.journal import Journal
    from streamfactory.arrowlog.disk.settings import Settings
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
    parts: Sequence[StagedFile | CarriedRows]
    """Its rows, in their order."""
    position: str | None
    """Position of its source, as JSON text."""
    turn: threading.Event = field(default_factory=threading.Event)
    """Set when it is done, or leads."""
    leads: bool = False
    """Whether its thread commits what is waiting."""
    done: bool = False
    committed: Committed = field(default_factory=Committed)
    error: BaseException | None = None

    @classmethod
    def of(cls, epoch: Epoch) -> _Request:
        position = None if epoch.position is None else epoch.position.to_json()
        attempts = epoch.attempts
        files: dict[str, list[StagedFile]] = {}
        for file in StagedFile.of(attempts):
            files.setdefault(file.attempt, []).append(file)
        parts: list[StagedFile | CarriedRows] = []
        for one in attempts:
            parts += files.get(one.attempt, ())
            parts += () if one.rows is None else (one.rows,)
        return cls(epoch, parts, position)

    @property
    def files(self) -> list[StagedFile]:
        """The parts that are files."""
        return [part for part in self.parts if isinstance(part, StagedFile)]

    @property
    def carried(self) -> list[CarriedRows]:
        """The parts that are not files yet."""
        return [part for part in self.parts if isinstance(part, CarriedRows)]

    @property
    def weight(self) -> int:
        """Approximate bytes in a record."""
        files = self.files
        batches = sum(len(run[2]) for file in files for run in file.runs)
        runs = sum(len(file.runs) for file in files)
        rows = sum(2 * part.size for part in self.carried)
        return 8 * batches + 96 * runs + rows + len(self.position or "")

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
    rows: dict[int, list[pa.RecordBatch]] = field(default_factory=dict)
    """Rows of the next inline segment, by partition."""
    bases: dict[int, int] = field(default_factory=dict)
    """Offset of the first of them, by partition."""
    appended: bool = False

    def append_rows(self, rows: CarriedRows) -> None:
        for partition, part in rows.parts:
            self.bases.setdefault(partition, self.latest[partition])
            self.rows.setdefault(partition, []).append(part.batch)
            self.latest[partition] += part.num_rows


class CommitQueue:
    """The commits of one process to one topic. Thread-safe.

    Args:
        journal: The records of the topic.
        settings: How inline segments are written.
    """

    def __init__(self, journal: Journal, settings: Settings) -> None:
        self._journal = journal
        self._settings = settings
        self._inline_size = settings.carried_size(journal.known.segment_format)
        self._lock = threading.Lock()
        self._waiting: list[_Request] = []
        self._led = False
        """Whether a thread is committing, which then passes that on."""

    def commit(self, epoch: Epoch) -> Committed:
        """See `Log.commit`."""
        request = _Request.of(epoch)
        written = self._write_many(request)
        try:
            self._enqueue(request)
            return request.outcome()
        except BaseException:
            if written and not request.done:
                self._journal.storage.remove(written)
            raise

    def _enqueue(self, request: _Request) -> None:
        """Return when a request is done, by this thread or by another one.

        The thread that commits wakes those whose requests are done, and the first of
        those that came meanwhile, which commits all of these.
        """
        with self._lock:
            self._waiting.append(request)
            request.leads, self._led = not self._led, True
        try:
            if not request.leads:
                request.turn.wait()
            if request.leads:
                with self._journal.publishing:
                    self._lead()
        finally:
            self._leave(request)

    def _leave(self, request: _Request) -> None:
        with self._lock:
            if request in self._waiting:  # its thread was interrupted
                self._waiting.remove(request)
            if request.leads:
                self._led = bool(self._waiting)
                for following in self._waiting[:1]:
                    following.leads = True
                    following.turn.set()

    def _write_many(self, request: _Request) -> list[str]:
        """Write carried rows to files that are too many for a record.

        Returns:
            The names of the files.
        """
        carried = request.carried
        size = sum(part.size for part in carried)
        if not carried or (self._inline_size and size <= self._inline_size):
            return []
        self._check_carried(carried)
        schema, storage = self._journal.known.schema, self._journal.storage
        parts: list[StagedFile | CarriedRows] = []
        names: list[str] = []
        try:
            for is_file, some in groupby(
                request.parts, lambda part: isinstance(part, StagedFile)
            ):
                if is_file:
                    parts += some
                    continue
                rows: dict[int, list[pa.RecordBatch]] = {}
                for part in some:
                    assert isinstance(part, CarriedRows)
                    for partition, batch in part.parts:
                        rows.setdefault(partition, []).append(batch.batch)
                files = write_segments(rows, storage, schema, self._settings)
                names += [file.name for file in files]
                parts += files
        except BaseException:
            storage.remove(names)
            raise
        request.parts = parts
        return names

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
                request.turn.set()
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
        self._close_rows(draft)
        removed = {}
        if draft.earliest:
            removed = let_go(state, draft.earliest)
        inline = any(segment.content is not None for segment in draft.segments)
        return self._journal.record(
            state,
            format=INLINE if inline else state.format,
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
        self._check_carried(request.carried)
        if epoch.replace:
            draft.earliest.update(enumerate(draft.latest))
        before = list(draft.latest)
        for part in request.parts:
            if isinstance(part, CarriedRows):
                draft.append_rows(part)
            else:
                self._close_rows(draft)
                draft.segments.append(_segment(part, draft.latest, draft.at))
        draft.writers.update(written)
        draft.appended = True
        spans = enumerate(map(range, before, draft.latest))
        placed = {partition: span for partition, span in spans if span}
        return Committed(placed=placed)

    def _close_rows(self, draft: _Draft) -> None:
        """Make an inline segment of carried rows: those behind it follow in a file."""
        if draft.rows:
            schema = self._journal.known.schema
            found = inline_segments(draft.rows, schema, self._settings)
            draft.segments += [
                _segment(file, draft.bases, draft.at, content)
                for file, content in found
            ]
            draft.rows, draft.bases = {}, {}

    def _check_carried(self, carried: Iterable[CarriedRows]) -> None:
        known = self._journal.known
        for rows in carried:
            if rows.incarnation != self._journal.incarnation:
                msg = "the rows of an attempt were staged for another topic"
                raise MisuseError(msg, remedy="abort the epoch and write it again")
            if not rows.schema.equals(known.schema):
                msg = "the rows of an attempt have another schema than the topic"
                raise MisuseError(msg, remedy="abort the epoch and write it again")
            for partition, _ in rows.parts:
                self._journal.known_with(partition)

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


def _segment(
    file: StagedFile,
    latest: list[int] | dict[int, int],
    now: int,
    content: bytes | None = None,
) -> Segment:
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
    full = file.full and content is None
    return Segment(file.name, file.size, 0, full, tuple(runs), content)
