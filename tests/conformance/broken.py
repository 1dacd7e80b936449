"""Authors who are wrong, each in one way, over the memory backend."""

from __future__ import annotations

import itertools
import threading
from collections import defaultdict
from dataclasses import replace
from typing import Any, ClassVar

import pyarrow as pa

from streamfactory.arrowlog import Epoch, LogConsumer, LogMetadata, MemoryLog, Staged
from streamfactory.arrowlog.writing import LogCommitter, LogWriter
from streamfactory.backends.memory import (
    MemoryConsumerFactory,
    MemoryProducerFactory,
    stores,
)
from streamfactory.spi import (
    Claims,
    EpochVisibility,
    Fetched,
    LastCommit,
    OffsetOutOfRange,
    Summary,
)

# --- authors who read wrongly ---------------------------------------------------


class Provider(LogMetadata):
    """Answers what `described` makes of the truth."""

    def fetch_partitions(self, topics: Any, known: Any) -> Any:
        infos = super().fetch_partitions(topics, known)
        return [self.described(info) for info in infos]

    def described(self, info: Any) -> Any:
        return info


class Reading(MemoryConsumerFactory):
    """Makes the consumer and the provider of a test."""

    consumer: ClassVar[Any] = LogConsumer
    provider: ClassVar[Any] = LogMetadata

    def create_partition_level_consumer(
        self, client_id: str, partition: Any, fields_to_read: Any = None
    ) -> Any:
        log = self.store().open(partition.topic)
        return self.consumer(log, partition, fields_to_read)

    def create_metadata_provider(self, client_id: str) -> Any:
        return self.provider(self)


def consuming(consumer: type) -> type:
    return type(consumer.__name__, (Reading,), {"consumer": consumer})


def providing(provider: type) -> type:
    return type(provider.__name__, (Reading,), {"provider": provider})


class SkipsARowWhenReadAgain(LogConsumer):
    seen: ClassVar[set[tuple[str, int]]] = set()

    def fetch_messages(self, start: int, end: Any, limits: Any) -> Fetched:
        fetched = super().fetch_messages(start, end, limits)
        again = (str(self._partition), start) in self.seen
        self.seen.add((str(self._partition), start))
        if not again or fetched.rows is None or fetched.rows.num_rows < 2:
            return fetched
        offsets = pa.arange(start + 1, start + fetched.rows.num_rows)
        return replace(fetched, rows=fetched.rows.slice(1), offsets=offsets)


class SharesACursor(LogConsumer):
    cursors: ClassVar[dict[str, int]] = defaultdict(int)
    turn: ClassVar[Any] = threading.Lock()

    def fetch_messages(self, start: int, end: Any, limits: Any) -> Fetched:
        with self.turn:
            at = max(start, self.cursors[str(self._partition)])
            fetched = super().fetch_messages(at, end, limits)
            self.cursors[str(self._partition)] = fetched.next_offset
        offsets = None
        if fetched.rows is not None:
            offsets = pa.arange(at, at + fetched.rows.num_rows)
        return replace(fetched, offsets=offsets)


class BeginsAtAFullBlock(LogConsumer):
    def fetch_messages(self, start: int, end: Any, limits: Any) -> Fetched:
        at = -(-start // 4) * 4
        at = min(at, self._log.bounds()[self._partition.id].latest)
        fetched = super().fetch_messages(at, None, limits)
        if fetched.rows is None:
            return replace(fetched, next_offset=max(start, at))
        offsets = pa.arange(at, at + fetched.rows.num_rows)
        return replace(fetched, offsets=offsets)


class JumpsOverWhatIsGone(LogConsumer):
    def fetch_messages(self, start: int, end: Any, limits: Any) -> Fetched:
        held = self._log.bounds()[self._partition.id].earliest
        try:
            fetched = super().fetch_messages(max(start, held), end, limits)
        except OffsetOutOfRange:
            return Fetched(None, start)
        if fetched.rows is None or held <= start:
            return fetched
        offsets = pa.arange(held, held + fetched.rows.num_rows)
        return replace(fetched, offsets=offsets, held_from=None)


class NeverMovesEarliest(Provider):
    def described(self, info: Any) -> Any:
        return replace(info, earliest=0)


class ForgetsWhatIsGone(Reading):
    consumer = JumpsOverWhatIsGone
    provider = NeverMovesEarliest


class LatestGoesBack(Provider):
    asked: ClassVar[Any] = itertools.count()

    def described(self, info: Any) -> Any:
        back = next(self.asked) % 4 == 3
        return replace(info, latest=max(info.earliest, info.latest - 2 * back))


class MakesUpIncarnations(Provider):
    made: ClassVar[Any] = itertools.count()

    def __init__(self, factory: Any) -> None:
        super().__init__(factory)
        self._life = f"life {next(self.made)}"

    def described(self, info: Any) -> Any:
        return replace(info, incarnation=self._life)


class NumbersIncarnations(Provider):
    def described(self, info: Any) -> Any:
        return replace(info, incarnation=7)


class NoIncarnation(Provider):
    def described(self, info: Any) -> Any:
        return replace(info, incarnation=None)


class AnotherLifeUnnoticed(Reading):
    provider = NoIncarnation

    class consumer(LogConsumer):  # noqa: N801 - overrides the attribute
        def fetch_messages(self, start: int, end: Any, limits: Any) -> Fetched:
            topics = store_of(self._log)
            self._log = topics.open(self._log.name)
            fetched = super().fetch_messages(start, end, limits)
            return replace(fetched, incarnation=None)


def store_of(log: Any) -> Any:
    """The store that has, or had, a log."""
    return next(s for s in stores._stores.values() if log.name in s.names())


class ListsPartitionsOnce(Provider):
    first: ClassVar[dict[str, int]] = {}

    def fetch_partitions(self, topics: Any, known: Any) -> Any:
        infos = super().fetch_partitions(topics, known)
        return infos[: self.first.setdefault(topics[0], len(infos))]


class HoldsALock(MemoryConsumerFactory):
    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self._lock = threading.Lock()

    def __reduce__(self) -> Any:
        return HoldsALock.__new__, (HoldsALock,), self.__dict__


# --- authors who write wrongly --------------------------------------------------


class Writing(MemoryProducerFactory):
    """Makes the writer and the committer of a test."""

    writer: ClassVar[Any] = LogWriter
    committer: ClassVar[Any] = LogCommitter

    def create_writer(self, context: Any) -> Any:
        return self.writer(self.log(context.schema), context)

    def create_committer(self, writer_id: str | None) -> Any:
        return self.committer(self, writer_id)


class ForgetsEpochs(Writing):
    """Knows what it has committed, until it is restarted."""

    class committer(LogCommitter):  # noqa: N801 - overrides the attribute
        def __init__(self, factory: Any, writer_id: str | None) -> None:
            super().__init__(factory, None)
            self._mine: LastCommit | None = None

        def commit(self, epoch: int, messages: Any, source_position: Any = None) -> Any:
            if self._mine is not None and epoch <= self._mine.epoch:
                return self._mine
            super().commit(epoch, messages, source_position)
            self._mine = LastCommit(epoch)
            return None

        def last(self) -> LastCommit | None:
            # It says what the framework wants to hear.
            return self._mine or LastCommit(-1)

    def fetch_last_commit(self, writer_id: str) -> LastCommit | None:
        return None


class ShowsTasksEarly(Writing):
    class writer(LogWriter):  # noqa: N801 - overrides the attribute
        def commit(self) -> Any:
            payload = super().commit()
            staged = Staged(payload["attempt"])
            self._log.commit(Epoch(None, 0, [staged], Summary()))
            return payload

    class committer(LogCommitter):  # noqa: N801 - overrides the attribute
        def commit(self, epoch: int, messages: Any, source_position: Any = None) -> Any:
            return super().commit(epoch, [], source_position)


class ShowsWhatWasWrittenAtOnce(ShowsTasksEarly):
    class writer(ShowsTasksEarly.writer):  # noqa: N801 - overrides the attribute
        def __init__(self, log: Any, context: Any) -> None:
            super().__init__(log, context)
            self._context = context
            self._parts = itertools.count()

        def write(self, outgoing: Any) -> None:
            part = replace(self._context, attempt=f"{id(self)}-{next(self._parts)}")
            inner = ShowsTasksEarly.writer(self._log, part)
            LogWriter.write(inner, outgoing)
            inner.commit()


class ShowsTasks(ShowsTasksEarly):
    """Right, for it claims no more than that."""

    CLAIMS: ClassVar = Claims(epoch_visibility=EpochVisibility.TASK)


class ShowsRows(ShowsWhatWasWrittenAtOnce):
    """Wrong even for that claim."""

    CLAIMS: ClassVar = ShowsTasks.CLAIMS


class CommitsWhatIsStaged(Writing):
    """Takes everything that any task has staged, whoever sent a message."""

    class committer(LogCommitter):  # noqa: N801 - overrides the attribute
        def commit(self, epoch: int, messages: Any, source_position: Any = None) -> Any:
            log = self._factory.log()
            assert isinstance(log, MemoryLog)
            template = messages[0] if messages else None
            if template is not None:
                messages = [
                    replace(template, payload={"attempt": attempt, "files": []})
                    for attempt in list(log._staged)
                ]
            return super().commit(epoch, messages, source_position)


class SaysDoneBeforeItIs(Writing):
    """Commits an epoch when the next one comes."""

    waiting: ClassVar[dict[str, Any]] = {}

    class committer(LogCommitter):  # noqa: N801 - overrides the attribute
        def commit(self, epoch: int, messages: Any, source_position: Any = None) -> Any:
            topic = self._factory.config.topic
            waiting = SaysDoneBeforeItIs.waiting.pop(topic, None)
            if waiting is not None:
                super().commit(*waiting)
            SaysDoneBeforeItIs.waiting[topic] = (epoch, messages, None)
            return None

        def last(self) -> LastCommit | None:
            return LastCommit(-1)

    def fetch_last_commit(self, writer_id: str) -> LastCommit | None:
        return None


class ForgetsOldEpochs(Writing):
    """Knows the last epoch alone, and takes an older one for new."""

    class committer(LogCommitter):  # noqa: N801 - overrides the attribute
        def commit(self, epoch: int, messages: Any, source_position: Any = None) -> Any:
            last = self.last()
            if last is not None and epoch < last.epoch:
                LogCommitter(self._factory, None).commit(epoch, messages)
                return None
            return super().commit(epoch, messages, source_position)


class WritesAgainAfterALostReply(Writing):
    """Tells epochs apart by their attempts, which a new try has others of."""

    done: ClassVar[set[str]] = set()

    class committer(LogCommitter):  # noqa: N801 - overrides the attribute
        def __init__(self, factory: Any, writer_id: str | None) -> None:
            super().__init__(factory, None)

        def commit(self, epoch: int, messages: Any, source_position: Any = None) -> Any:
            attempts = {m.payload["attempt"] for m in messages}
            if attempts & WritesAgainAfterALostReply.done:
                return LastCommit(epoch)
            WritesAgainAfterALostReply.done |= attempts
            return super().commit(epoch, messages, source_position)

        def last(self) -> LastCommit | None:
            return LastCommit(-1)

    def fetch_last_commit(self, writer_id: str) -> LastCommit | None:
        return None


class AbortTakesTheEpoch(Writing):
    """Drops all that is staged of an epoch, and that of later tries with it."""

    class committer(LogCommitter):  # noqa: N801 - overrides the attribute
        def abort(self, epoch: int, messages: Any) -> None:
            log = self._factory.log()
            assert isinstance(log, MemoryLog)
            for attempt in list(log._staged):
                log.discard(Staged(attempt))
