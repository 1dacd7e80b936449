"""The records of one topic: read as others publish them, and published in turn.

Whoever wants a next step publishes a record under the next number, and nobody else can
have that number. Two that want it at once: one wins, the other takes the winner's step
and tries the number behind it.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any, Final, final

from streamfactory.arrowlog.disk.loading import hole, load
from streamfactory.arrowlog.disk.names import record_name
from streamfactory.arrowlog.disk.records import Record, is_intact
from streamfactory.arrowlog.log import no_such_partition
from streamfactory.spi import (
    CorruptData,
    StreamTimeout,
    TopicNotFound,
    TransientError,
)
from streamfactory.spi.backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from streamfactory.arrowlog.disk.state import State
    from streamfactory.arrowlog.disk.storage import Storage

_PATIENCE: Final = 60.0
"""Seconds that a publication tries to win."""
_BACKOFF: Final = Backoff(0.001, 0.05)

_logger = logging.getLogger("streamfactory")


@final
class Journal:
    """What is known of one topic, and the way to its next step. Thread-safe.

    Args:
        name: Of the topic.
        incarnation: Of this one of that name.
        storage: Of its files.
        clock: Answers milliseconds since the epoch.

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
        self.now_ms = clock or _wall_clock
        self.lock = threading.RLock()
        """Guards what `known` and `refreshed` answer."""
        self.publishing = threading.RLock()
        """Held by the one thread of ours that publishes; taken before `lock`."""
        self._state = self._loaded()
        self.refreshed()

    @property
    def known(self) -> State:
        """What was applied so far, without a look. Hold `lock` while using it."""
        return self._state

    def record(self, state: State, at: int | None = None, **members: Any) -> Record:
        """A next step after ``state``; only its members are missing.

        Args:
            state: What is known.
            at: The time of the step, of `time_of`.
            **members: Of the record.
        """
        at = self.time_of(state) if at is None else at
        version = state.version + 1 + len(state.void)
        return Record("", version, at, void=tuple(state.void), **members)

    def time_of(self, state: State) -> int:
        """The time of a next step: by the clock, but never before the last step."""
        return max(int(self.now_ms()), state.at)

    def publish(self, build: Callable[[State], Record | None]) -> bool:
        """Take a next step.

        Args:
            build: Makes the record, of what is known; called again whenever another
                writer was first. May raise: then nothing is published. None: there is
                nothing to do.

        Returns:
            Whether this call published.

        Raises:
            StreamTimeout: transient; others were first for too long.
            TransientError: transient; whether it was published is not known.
        """
        identity = uuid.uuid4().hex
        deadline = time.monotonic() + _PATIENCE
        with self.publishing:
            for failures in itertools.count(1):
                with self.lock:
                    state = self.refreshed()
                    if identity in state.ids:
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
        except FileNotFoundError:  # the folder is gone: the topic was deleted
            raise self._gone() from None
        if won:
            return self._won(data, len(encoded))
        if late:
            msg = f"{self.name!r}: other writers were first for {_PATIENCE:.0f} s"
            raise StreamTimeout(msg, remedy="have fewer writers, or larger epochs")
        return False

    def _won(self, record: Record, size: int) -> bool:
        """Whether the number that was taken counts.

        A writer that stalls may find its number free again, because records up to far
        beyond it were removed. While the record before is there, none was.
        """
        before = record.version - 1 - len(record.void)
        with self.lock:
            if self._there(before):
                # Another thread may have read it already: nobody else has its number.
                if self._state.version < record.version:
                    self._state.apply(record, size)
                return True
            self._state = self._loaded()
            if record.id in self._state.ids:
                return True  # it counted, and was removed in its time
            self.storage.remove([record_name(record.version)])
            return False

    def check_partitions(self, partitions: Collection[int]) -> None:
        """Refuse partitions that are not there."""
        for partition in partitions:
            self.check_partition(partition)

    def check_partition(self, partition: int) -> None:
        """Refuse a partition that is not there."""
        if not 0 <= partition < len(self._state.latest):
            self.refreshed()
        count = len(self._state.latest)
        if not 0 <= partition < count:
            raise no_such_partition(self.name, partition, count)

    def reload(self) -> None:
        """Read the newest snapshot: what was known in memory is known in files."""
        fresh = self._loaded()
        with self.lock:
            self._state = fresh
            self.refreshed(ended=True)

    def refreshed(self, *, ended: bool = False) -> State:
        """All that was published, applied. Hold `lock` while using it.

        Args:
            ended: Whether a topic that has ended is an answer, rather than an error.
        """
        state = self._state
        if not self._advance(state):
            seen = state.version
            state = self._state = self._loaded()
            if state.version < seen:
                gone = f"the records from {state.version + 1} to {seen} are missing"
                msg = f"{self.storage.location}: {gone}"
                raise CorruptData(msg)
        if state.deleted and not ended:
            raise self._gone()
        return state

    def _loaded(self) -> State:
        """The topic, read anew: a snapshot, and all records since.

        Raises:
            CorruptData: data_loss; a record is missing.
        """
        before = -1
        while True:
            state = load(self.storage, self.incarnation)
            caught_up = self._advance(state)
            missing = None if state.deleted else hole(self.storage, state)
            # Records that were removed meanwhile leave a newer snapshot behind.
            same = state.version == before
            if missing is not None and (same or self._there(state.version)):
                raise CorruptData(missing)
            if missing is None and (same or caught_up):
                return state
            before = state.version

    def _advance(self, state: State) -> bool:
        """Apply what others have published.

        Answers:
            False where records were removed before they were read, and ``state`` is not
            to be trusted. The oldest go first: while the one that this began behind is
            there, no later one was ever removed. Otherwise a number that was free again
            may have been taken by a writer that had stalled (`_try`).
        """
        behind = state.version
        while True:
            version = state.version + 1 + len(state.void)
            name = record_name(version)
            try:
                data = self.storage.read(name)
            except FileNotFoundError:
                return self._there(behind)
            place = f"{self.storage.location}/{name}"
            if not is_intact(data):
                _logger.warning(
                    "%s is torn: an epoch that was not synced is lost", place
                )
                state.void.append(version)
                continue
            record = Record.decode(data, place, version)
            try:
                state.apply(record, len(data))
            except CorruptData as error:
                if not self._there(behind):
                    return False  # perhaps of a writer that had stalled
                msg = f"{self.storage.location}: {error.what}"
                raise CorruptData(msg, remedy=error.remedy) from error
            if state.deleted:
                return True  # nothing follows, and what was before is removed

    def _there(self, version: int) -> bool:
        """Whether a record is there."""
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


def _wall_clock() -> float:
    return time.time() * 1000
