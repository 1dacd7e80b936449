"""Group commit: one record commits all epochs that are waiting.

While one thread writes a record, commits of other threads queue up; the next record
contains them all, so many writers with small epochs cost as much as one.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from streamfactory.arrowlog.carried import CarriedRows
from streamfactory.arrowlog.checks import no_such_partition
from streamfactory.arrowlog.decoding import InvalidValue, text
from streamfactory.arrowlog.disk.housekeeping import let_go
from streamfactory.arrowlog.disk.inline import write_carried
from streamfactory.arrowlog.disk.names import ATTEMPT_ID, SEGMENTS
from streamfactory.arrowlog.disk.records import (
    INLINE,
    Record,
    WriterState,
    decode_writer,
)
from streamfactory.arrowlog.disk.requests import CommitRequest, RecordDraft, grouped
from streamfactory.arrowlog.values import Committed
from streamfactory.arrowlog.writers import committed_before
from streamfactory.spi import MisuseError, StreamError, TopicNotFound, WriterFenced
from streamfactory.spi.waits import wait_in_slices

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from streamfactory.arrowlog.disk.journal import Journal
    from streamfactory.arrowlog.disk.settings import Settings
    from streamfactory.arrowlog.disk.staging import StagedFile
    from streamfactory.arrowlog.disk.state import State
    from streamfactory.arrowlog.values import Epoch
    from streamfactory.spi import LastCommit

logger = logging.getLogger("streamfactory")


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
        self._waiting: list[CommitRequest] = []
        self._led = False
        """Whether a thread is committing, which then passes that on."""

    def commit(self, epoch: Epoch) -> Committed:
        """See `Log.commit`."""
        request = CommitRequest.of(epoch)
        written = self._write_many(request)
        try:
            self._enqueue(request)
            return request.outcome()
        except BaseException:
            with suppress(StreamError, OSError):  # the sweep removes them later
                self.discard(written)
            raise

    def _enqueue(self, request: CommitRequest) -> None:
        """Return when a request is done, by this thread or by another one.

        The thread that commits wakes those whose requests are done, and the first of
        those that came meanwhile, which commits all of these.
        """
        try:
            with self._lock:
                self._waiting.append(request)
                request.leads, self._led = not self._led, True
            if not request.leads:
                wait_in_slices(request.turn.wait)
            if request.leads:
                with self._journal.publishing:
                    self._lead()
        finally:
            self._leave(request)

    def _leave(self, request: CommitRequest) -> None:
        with self._lock:
            if request in self._waiting:  # its thread was interrupted
                self._waiting.remove(request)
            if request.leads:
                self._led = bool(self._waiting)
                for following in self._waiting[:1]:
                    following.leads = True
                    following.turn.set()

    def _write_many(self, request: CommitRequest) -> list[str]:
        """Write carried rows to files that are too many for a record.

        Returns:
            The names of the files.
        """
        carried = request.carried
        size = sum(part.size for part in carried)
        if not carried or (self._inline_size and size <= self._inline_size):
            return []
        journal = self._journal
        for part in carried:
            # Rows of a deleted topic may have partitions that this one lacks.
            self._check_carried(journal.known, part)
            journal.known_with(*part.partitions)
        files = write_carried(
            request.parts, journal.storage, journal.known.schema, self._settings
        )
        known = {file.name for file in request.files}
        request.parts = files
        return [file.name for file in files if file.name not in known]

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
        for group in grouped(requests):
            self._commit(group)

    def _commit(self, requests: Sequence[CommitRequest]) -> None:
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

    def _build(self, state: State, requests: Sequence[CommitRequest]) -> Record | None:
        at = self._journal.time_of(state)
        draft = RecordDraft(state.schema, self._settings, list(state.latest), at)
        for request in requests:
            request.committed, request.error = Committed(), None
            try:
                request.committed = self._add(draft, state, request)
            except (MisuseError, WriterFenced, TopicNotFound) as error:
                request.error = error
        if not draft.appended:
            return None
        draft.close_rows()
        removed = {}
        if draft.earliest:
            removed = let_go(state, draft.earliest)
        return self._journal.record(
            state,
            format=INLINE if draft.attempts else state.format,
            at=draft.at,
            writers=draft.writers,
            earliest=draft.earliest,
            segments=draft.segments,
            removed=removed,
            attempts=draft.attempts,
        )

    def _add(
        self, draft: RecordDraft, state: State, request: CommitRequest
    ) -> Committed:
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
        placed = draft.append(request)
        draft.writers.update(written)
        return Committed(placed=placed)

    def _check_carried(self, state: State, rows: CarriedRows) -> None:
        what = None
        if rows.incarnation != self._journal.incarnation:
            what = "were staged for a topic that was deleted"
        elif not rows.schema.equals(state.schema):
            what = "have another schema than the topic"
        if what is not None:
            msg = f"topic {self._journal.name!r}: the rows of an attempt {what}"
            raise MisuseError(msg, remedy="abort the epoch and write it again")

    def _check_staged(
        self, draft: RecordDraft, state: State, request: CommitRequest
    ) -> None:
        for attempt in request.attempts:
            if attempt in state.attempts or attempt in draft.attempts:
                raise _gone(attempt)
            if ATTEMPT_ID.fullmatch(attempt) is None:
                msg = f"the id {attempt!r} of an attempt cannot be stored"
                raise MisuseError(msg, remedy="use a uuid")
        taken = {segment.name for segment in draft.segments}
        for part in request.parts:
            if isinstance(part, CarriedRows):
                self._check_carried(state, part)
            else:
                self._check_file(state, part, taken)
            last = max(part.partitions, default=0)
            if last >= len(state.latest):
                raise no_such_partition(self._journal.name, last, len(state.latest))

    def _check_file(
        self, state: State, file: StagedFile, taken: Collection[str]
    ) -> None:
        if file.name in taken or not self._there(state, file):
            raise _gone(file.attempt)
        if SEGMENTS[state.segment_format].fullmatch(file.name) is None:
            msg = f"attempt {file.attempt} staged {file.name}, but the segments of "
            msg += f"the topic are of the format {state.segment_format}"
            raise MisuseError(msg, remedy="abort the epoch and write it again")

    def _there(self, state: State, file: StagedFile) -> bool:
        """Whether a staged file is complete, and neither swept nor committed."""
        if file.name in state.removed or state.index.has(file.name):
            return False
        try:
            return self._journal.storage.size(file.name) == file.size
        except FileNotFoundError:
            return False


def _gone(attempt: str) -> MisuseError:
    """The rows of an attempt were committed, discarded or swept."""
    msg = f"what attempt {attempt} staged no longer exists"
    return MisuseError(msg, remedy="abort the epoch and write it again")


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
