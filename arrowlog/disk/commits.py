"""Epochs on their way into a topic: whoever publishes takes along who waits.

While one thread waits for the medium, the commits of others gather; the next record has
them all. Many writers with small epochs then cost as much as one.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any

from streamfactory.arrowlog.checks import fenced
from streamfactory.arrowlog.disk.housekeeping import let_go
from streamfactory.arrowlog.disk.records import Record, Run, Segment, WriterState
from streamfactory.spi import MisuseError, StreamError, TopicNotFound, WriterFenced

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streamfactory.arrowlog.disk.log import DiskLog
    from streamfactory.arrowlog.disk.state import State
    from streamfactory.arrowlog.log import Staged
    from streamfactory.spi import LastCommit, Position, Summary

logger = logging.getLogger("streamfactory")


@dataclass(slots=True, eq=False)
class _Request:
    """One epoch that wants to be committed."""

    writer: str | None
    epoch: int
    staged: Sequence[Staged]
    instance: str
    summary: Summary
    position: str | None
    replace: bool
    done: bool = False
    held: LastCommit | None = None
    error: BaseException | None = None

    def files(self) -> list[Mapping[str, Any]]:
        return [file for one in self.staged for file in one.files]

    def outcome(self) -> LastCommit | None:
        if self.error is not None:
            raise self.error
        return self.held


@dataclass(slots=True)
class _Draft:
    """What a record of several commits will say, as it grows."""

    latest: list[int]
    at: int
    """When all of it was appended."""
    earliest: dict[int, int] = field(default_factory=dict)
    writers: dict[str, WriterState] = field(default_factory=dict)
    segments: list[Segment] = field(default_factory=list)
    appended: bool = False


class CommitQueue:
    """The commits of one process to one topic."""

    def __init__(self, log: DiskLog) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._waiting: list[_Request] = []

    def commit(
        self,
        writer: str | None,
        epoch: int,
        staged: Sequence[Staged],
        instance: str,
        summary: Summary,
        source_position: Position | None,
        *,
        replace: bool,
    ) -> LastCommit | None:
        """As `Log.commit`."""
        once = list({one.attempt: one for one in staged}.values())
        position = None if source_position is None else source_position.to_json()
        request = _Request(writer, epoch, once, instance, summary, position, replace)
        with self._lock:
            self._waiting.append(request)
        with self._log.journal.publishing:
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
            now = int(self._log.journal.now_ms())
            if known is None:
                claimed = WriterState(instance, now)
            else:
                claimed = WriterState(
                    instance, now, known.epoch, known.rows, known.sums, known.position
                )
            return self._log.journal.record(state, writers={writer: claimed})

        self._log.journal.publish(build)
        return held[0]

    def _lead(self) -> None:
        """Commit everything that waits."""
        with self._lock:
            requests, self._waiting = self._waiting, []
        # One that replaces what was there is alone in its record.
        for _, group in groupby(requests, key=lambda one: one.replace and id(one)):
            self._commit(list(group))

    def _commit(self, requests: Sequence[_Request]) -> None:
        ended = False
        try:
            # The names of what tasks have staged have to be safe before their record.
            if any(request.files() for request in requests):
                self._log.storage.settle("data")
            self._log.journal.publish(lambda state: self._build(state, requests))
            if any(request.held for request in requests):
                # Who published it may have been killed before its name was safe.
                self._log.storage.settle("log")
        except BaseException as error:  # noqa: BLE001 - each of those who wait gets it
            ended = isinstance(error, TopicNotFound)
            for request in requests:
                request.error = request.error or error
        finally:
            for request in requests:
                request.done = True
        # Late ones, but for those that this very epoch was committed with.
        late = [f["name"] for r in requests if r.held or ended for f in r.files()]
        try:
            self._log.discard_files(late)
        except (StreamError, OSError) as error:  # the sweep finds them
            logger.warning("%s: discarding: %s", self._log.name, error)

    def _build(self, state: State, requests: Sequence[_Request]) -> Record | None:
        draft = _Draft(list(state.latest), self._log.journal.time_of(state))
        for request in requests:
            request.held = request.error = None
            try:
                self._add(draft, state, request)
            except (MisuseError, WriterFenced, TopicNotFound) as error:
                request.error = error
        if not draft.appended:
            return None
        removed = {}
        if draft.earliest:
            removed = let_go(state, draft.earliest)
        return self._log.journal.record(
            state,
            at=draft.at,
            writers=draft.writers,
            earliest=draft.earliest,
            segments=draft.segments,
            removed=removed,
        )

    def _add(self, draft: _Draft, state: State, request: _Request) -> None:
        if request.writer is not None:
            known = draft.writers.get(request.writer, state.writers.get(request.writer))
            last = None if known is None else known.last()
            if last is not None and request.epoch <= last.epoch:
                request.held = last
                return
            if known is not None and known.owner != request.instance:
                raise WriterFenced(fenced(request.writer, request.epoch))
        self._check_staged(draft, state, request)
        if request.replace:
            draft.earliest.update(enumerate(draft.latest))
        for file in request.files():
            draft.segments.append(_segment(file, draft.latest, draft.at))
        if request.writer is not None:
            draft.writers[request.writer] = WriterState(
                request.instance,
                draft.at,
                request.epoch,
                request.summary.rows,
                request.summary.sums,
                request.position,
            )
        draft.appended = True

    def _check_staged(self, draft: _Draft, state: State, request: _Request) -> None:
        taken = {segment.name for segment in draft.segments}
        for one in request.staged:
            for file in one.files:
                if file["name"] in taken or not self._there(state, file):
                    msg = f"what attempt {one.attempt} staged is gone"
                    raise MisuseError(msg, remedy="write the epoch again")
                lanes = {run[0] for run in file["runs"]}
                if max(lanes, default=0) >= len(state.latest):
                    msg = f"{self._log.name!r} has no partition {max(lanes)}"
                    raise TopicNotFound(msg)

    def _there(self, state: State, file: Mapping[str, Any]) -> bool:
        """Whether a staged file is whole, and was not swept, or committed before."""
        if file["name"] in state.removed or state.index.has(file["name"]):
            return False
        try:
            return self._log.storage.size(file["name"]) == int(file["bytes"])
        except FileNotFoundError:
            return False


def _segment(file: Mapping[str, Any], latest: list[int], now: int) -> Segment:
    """A staged file with its offsets; moves ``latest`` on."""
    runs = []
    for partition, first_batch, batches, size in file["runs"]:
        base, rows = latest[partition], sum(batches)
        runs.append(
            Run(
                partition,
                base,
                rows,
                file["name"],
                first_batch,
                tuple(batches),
                size,
                now,
                now,
            )
        )
        latest[partition] = base + rows
    return Segment(file["name"], file["bytes"], 0, file["full"], tuple(runs))
