"""The journal of one topic.

Reads the records of other processes, and publishes new ones.

Each change is a record with the next number, published exclusively. If two processes
publish concurrently, one wins, and the other applies the winner's record and tries the
next number.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import logging
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any, Final, final

from streamfactory.arrowlog.checks import no_such_partition
from streamfactory.arrowlog.clocks import LogClock
from streamfactory.arrowlog.disk.loading import hole, load
from streamfactory.arrowlog.disk.names import record_name
from streamfactory.arrowlog.disk.records import Record
from streamfactory.arrowlog.disk.sealed import is_intact
from streamfactory.arrowlog.disk.state import apply
from streamfactory.spi import (
    CorruptData,
    StreamError,
    StreamTimeout,
    TopicNotFound,
    TransientError,
)
from streamfactory.spi.backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamfactory.arrowlog.disk.state import State
    from streamfactory.arrowlog.disk.storage import Storage

_PATIENCE: Final = 60.0
"""Seconds that a publication tries to win."""
_BACKOFF: Final = Backoff(0.001, 0.05)
_READ: Final = 1024
"""Records after which a topic is loaded again: what they add to the state of a reader
is in a snapshot by then."""

_logger = logging.getLogger("streamfactory")


@final
class Journal:
    """The known state of one topic, and its publication of records. Thread-safe.

    Args:
        name: Name of the topic.
        incarnation: Incarnation of the topic.
        storage: Storage of its files.
        clock: Returns milliseconds since the epoch.

    Raises:
        TopicNotFound: permanent.
        CorruptData: data_loss.
        FormatRefused: permanent.
    """

    def __init__(
        self,
        name: str,
        incarnation: str,
        storage: Storage,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.name = name
        self.incarnation = incarnation
        self.storage = storage
        self.clock = LogClock(name, clock)
        self.publishing = threading.RLock()
        """Held by the publishing thread, which may acquire `_lock`."""
        self._lock = threading.RLock()
        """Held by the thread that replaces `known`."""
        self._loaded_at = -1
        """The version to which the topic was loaded."""
        self.known = self._loaded()
        """The state, as far as records were read."""
        self.refreshed()

    def record(self, state: State, at: int | None = None, **members: Any) -> Record:
        """Create the record after ``state``.

        Args:
            state: What is known.
            at: The time of the step, of `time_of`.
            **members: Of the record.
        """
        at = self.time_of(state) if at is None else at
        members.setdefault("format", state.format)
        return Record("", state.following, at, void=state.void, **members)

    def time_of(self, state: State) -> int:
        """Return the time of the next record.

        By the clock, but never before the last one.
        """
        return max(int(self.clock.now(state.at)), state.at)

    def publish(self, build: Callable[[State], Record | None]) -> bool:
        """Publish the next record.

        Args:
            build: Creates the record from the state; called again after another writer
                published first. If it raises, nothing is published. None: there is
                nothing to do.

        Returns:
            Whether this call published.

        Raises:
            StreamTimeout: transient; other writers published first for too long.
            TransientError: transient; it is unknown whether it was published.
        """
        identity = uuid.uuid4().hex
        deadline = time.monotonic() + _PATIENCE
        with self.publishing:
            for failures in itertools.count(1):
                state = self.refreshed()
                if failures > 1 and identity in state.ids:
                    return True  # the reply was lost, the record was not
                record = build(state)
                if record is None:
                    return False
                if self._try(record, identity, deadline):
                    return True
                time.sleep(_BACKOFF.pause(failures))
        return False

    def _try(self, record: Record, identity: str, deadline: float) -> bool:
        data = dataclasses.replace(record, id=identity)
        encoded, name = data.encode(), record_name(record.version)
        late = time.monotonic() > deadline
        try:
            won = self.storage.publish(name, encoded)
        except TransientError:
            if late:
                raise
            return False
        except FileNotFoundError:  # no folder: the topic was deleted
            raise self._gone() from None
        if won:
            return self._won(data, len(encoded))
        if late:
            msg = (
                f"topic {self.name!r}: other writers published first for "
                f"{_PATIENCE:.0f} s"
            )
            raise StreamTimeout(msg, remedy="use fewer writers, or larger epochs")
        return False

    def _won(self, record: Record, size: int) -> bool:
        """Whether the published record is valid.

        A stalled writer may find its number free again, because records far beyond it
        were removed. If the previous record exists, none was removed.
        """
        before = record.version - 1 - len(record.void)
        with self._lock:
            if self._there(before):
                # Another thread may have read it already: its number is unique.
                if self.known.version < record.version:
                    self.known = apply(self.known, record, size)
                return True
            self.known = self._loaded()
            if record.id in self.known.ids:
                return True  # it was valid, and was removed later
            self.storage.remove([record_name(record.version)])
            return False

    def known_with(self, *partitions: int) -> State:
        """Return a state that has some partitions.

        It is refreshed only if one is unknown.

        Raises:
            TopicNotFound: permanent; a partition does not exist, or the topic was
                deleted.
        """
        state = self.known
        for partition in partitions:
            if not 0 <= partition < len(state.latest):
                state = self.refreshed()
            if not 0 <= partition < len(state.latest):
                raise no_such_partition(self.name, partition, len(state.latest))
        return state

    def reload(self) -> None:
        """Read the newest snapshot, to release memory."""
        fresh = self._loaded()
        with self._lock:
            self.known = fresh
            self.refreshed(ended=True)

    def refreshed(self, *, ended: bool = False) -> State:
        """Apply all published records, and return the state.

        Args:
            ended: Whether to return a deleted topic instead of raising.
        """
        with self._lock:
            state = self.known = self._continued(self.known)
        if state.deleted and not ended:
            raise self._gone()
        return state

    def _continued(self, state: State) -> State:
        """Return the state after all published records."""
        state, valid = self._advanced(state)
        if not valid:
            loaded = self._loaded()
            if loaded.version < state.version:
                gone = f"{loaded.version + 1} to {state.version} are missing"
                msg = f"{self.storage.location}: the records from {gone}"
                raise CorruptData(msg)
            return loaded
        if state.version - self._loaded_at >= _READ and not state.deleted:
            self._loaded_at = state.version
            with contextlib.suppress(StreamError):  # what was read is still valid
                loaded = self._loaded()
                return loaded if loaded.version >= state.version else state
        return state

    def _loaded(self) -> State:
        """Load the topic: a snapshot, and all later records.

        Raises:
            CorruptData: data_loss; a record is missing.
        """
        before = -1
        while True:
            state, caught_up = self._advanced(load(self.storage))
            missing = None if state.deleted else hole(self.storage, state)
            # If records were removed meanwhile, there is a newer snapshot.
            same = state.version == before
            if missing is not None and (same or self._there(state.version)):
                raise CorruptData(missing)
            if missing is None and (same or caught_up):
                self._loaded_at = state.version
                return state
            before = state.version

    def _advanced(self, state: State) -> tuple[State, bool]:
        """Return the state after new records, and whether it is valid.

        Returns:
            False if records were removed before they were read. The oldest are
            removed first: if the record at the start exists, no later one was removed.
            Otherwise a stalled writer may have used a number again (`_try`).
        """
        behind = state.version
        while True:
            version = state.following
            name = record_name(version)
            try:
                data = self.storage.read(name)
            except FileNotFoundError:
                return state, self._there(behind)
            place = f"{self.storage.location}/{name}"
            if not is_intact(data):
                _logger.warning(
                    "%s is torn: an epoch that was not synced is lost", place
                )
                state = dataclasses.replace(state, void=(*state.void, version))
                continue
            record = Record.decode(data, place, version)
            try:
                state = apply(state, record, len(data))
            except CorruptData as error:
                if not self._there(behind):
                    return state, False  # possibly of a stalled writer
                msg = f"{self.storage.location}: {error.what}"
                raise CorruptData(msg, remedy=error.remedy) from error
            if state.deleted:
                return state, True  # it is the last one, and earlier ones were removed

    def _there(self, version: int) -> bool:
        """Whether a record exists."""
        try:
            self.storage.size(record_name(version))
        except FileNotFoundError:
            if not self.storage.names("log"):
                raise self._gone() from None
            return False
        return True

    def _gone(self) -> TopicNotFound:
        msg = f"the topic {self.name!r} was deleted"
        return TopicNotFound(msg)
