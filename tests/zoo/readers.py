"""Backends that read wrongly, each in one way."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from tests.zoo.registry import ZooConsumers, caught_by

from streamfactory.arrowlog import LogConsumer, LogConsumerFactory, LogMetadata
from streamfactory.spi import (
    BatchState,
    Fetched,
    FetchLimits,
    PartitionInfo,
    PermanentError,
)


@caught_by("offsets_rise_and_nothing_is_missing")
class ReturnsRowsBackwards(LogConsumer):
    """Rows are returned in reverse order."""

    def fetch_messages(self, start: int, end: Any, limits: FetchLimits) -> Fetched:
        fetched = super().fetch_messages(start, end, limits)
        if fetched.rows is None:
            return fetched
        order = pa.array(range(fetched.rows.num_rows - 1, -1, -1))
        return replace(fetched, rows=fetched.rows.take(order))


@caught_by("offsets_rise_and_nothing_is_missing")
class DropsTheLastRowOfABatch(LogConsumer):
    """The last row of every result is dropped and skipped."""

    def fetch_messages(self, start: int, end: Any, limits: FetchLimits) -> Fetched:
        fetched = super().fetch_messages(start, end, limits)
        if fetched.rows is None or fetched.rows.num_rows < 2:
            return fetched
        return replace(fetched, rows=fetched.rows.slice(0, fetched.rows.num_rows - 1))


@caught_by("offsets_rise_and_nothing_is_missing")
class ReturnsOffsetsPlusOne(LogConsumer):
    """Offsets of results are too large by one."""

    def fetch_messages(self, start: int, end: Any, limits: FetchLimits) -> Fetched:
        fetched = super().fetch_messages(start, end, limits)
        if fetched.rows is None:
            return fetched
        count = fetched.rows.num_rows
        return replace(fetched, offsets=pa.array([start] * count, pa.int64()))


@caught_by("offsets_rise_and_nothing_is_missing")
class RepeatsTheFirstRow(LogConsumer):
    """The first row of every result is returned twice."""

    def fetch_messages(self, start: int, end: Any, limits: FetchLimits) -> Fetched:
        fetched = super().fetch_messages(start, end, limits)
        if fetched.rows is None or fetched.rows.num_rows < 3:
            return fetched
        order = pa.array([0, *range(fetched.rows.num_rows - 1)])
        return replace(fetched, rows=fetched.rows.take(order))


@caught_by("offsets_rise_and_nothing_is_missing")
class NeverAdvances(LogConsumer):
    """The next offset is always the start."""

    def fetch_messages(self, start: int, end: Any, limits: FetchLimits) -> Fetched:
        fetched = super().fetch_messages(start, end, limits)
        return replace(fetched, rows=None, next_offset=start)


@caught_by("a_start_is_inclusive")
class TreatsStartsAsExclusive(LogConsumer):
    """Any start but the first is treated as the last offset read."""

    def fetch_messages(self, start: int, end: Any, limits: FetchLimits) -> Fetched:
        latest = self._log.bounds()[self._partition.id].latest
        skip = 1 if 0 < start < latest - 1 else 0
        fetched = super().fetch_messages(start + skip, end, limits)
        if fetched.rows is None or not skip:
            return fetched
        return replace(fetched, offsets=pa.arange(start + 1, fetched.next_offset))


@caught_by("an_open_consumer_seeks_to_any_start")
class IgnoresTheStart(LogConsumer):
    """An open consumer continues at its own position."""

    _at: int | None = None

    def fetch_messages(self, start: int, end: Any, limits: FetchLimits) -> Fetched:
        at = start if self._at is None else self._at
        fetched = super().fetch_messages(at, None, limits)
        self._at = fetched.next_offset
        return fetched


@caught_by("an_empty_fetch_returns_within_its_time_slice")
class ExceedsItsTimeSlice(LogConsumer):
    """A fetch without messages waits for one second, beyond its time slice."""

    def fetch_messages(self, start: int, end: Any, limits: FetchLimits) -> Fetched:
        return super().fetch_messages(start, end, replace(limits, timeout=1.0))


@caught_by("small_limits_return_the_same_rows")
class SkipsRowsUnderSmallLimits(LogConsumer):
    """With a limit of one row it returns none and skips one in ten."""

    def fetch_messages(self, start: int, end: Any, limits: FetchLimits) -> Fetched:
        fetched = super().fetch_messages(start, end, limits)
        if limits.max_rows == 1 and fetched.rows is not None and start % 10 == 5:
            return replace(fetched, rows=None)
        return fetched


@caught_by("a_range_read_twice_is_identical")
class DeletesWhatItReads(LogConsumer):
    """Reading deletes all earlier messages."""

    def fetch_messages(self, start: int, end: Any, limits: FetchLimits) -> Fetched:
        fetched = super().fetch_messages(start, end, limits)
        if fetched.rows is not None and fetched.rows.num_rows == 120:
            self._log.truncate({self._partition.id: fetched.next_offset})
        return fetched


class _Shared:
    at: ClassVar[dict[tuple[str, int], int]] = {}


@caught_by("two_consumers_do_not_disturb_each_other")
class SharesItsPosition(LogConsumer):
    """All consumers of a partition share one cursor while their limits are small."""

    def fetch_messages(self, start: int, end: Any, limits: FetchLimits) -> Fetched:
        if limits.max_rows != 7:
            return super().fetch_messages(start, end, limits)
        key = (self._log.incarnation, self._partition.id)
        fetched = super().fetch_messages(_Shared.at.get(key, start), end, limits)
        _Shared.at[key] = fetched.next_offset
        return fetched


@caught_by("a_range_split_anywhere_equals_the_whole")
class DropsTheLastRowOfARange(LogConsumer):
    """A range lacks its last row."""

    def fetch_messages(self, start: int, end: Any, limits: FetchLimits) -> Fetched:
        fetched = super().fetch_messages(start, end, limits)
        latest = self._log.bounds()[self._partition.id].latest
        if fetched.rows is None or end is None or end == latest:
            return fetched
        if fetched.next_offset < end or fetched.rows.num_rows < 2:
            return fetched
        return replace(fetched, rows=fetched.rows.slice(0, fetched.rows.num_rows - 1))


@caught_by("an_empty_result_is_a_batch_with_its_state")
class ReturnsNoneWhenIdle(LogConsumer):
    """Without messages it returns None."""

    def fetch_messages(self, start: int, end: Any, limits: FetchLimits) -> Any:
        fetched = super().fetch_messages(start, end, limits)
        if fetched.rows is None and start > 0:
            return None
        return fetched


@caught_by("a_loss_is_recorded_when_the_policy_continues")
class SkipsExpiredStarts(LogConsumer):
    """After retention it silently skips an expired start."""

    def fetch_messages(self, start: int, end: Any, limits: FetchLimits) -> Fetched:
        earliest = self._log.bounds()[self._partition.id].earliest
        if start == earliest > 0:
            fetched = super().fetch_messages(start + 1, end, limits)
            return replace(fetched, offsets=pa.arange(start + 1, fetched.next_offset))
        return super().fetch_messages(start, end, limits)


@caught_by("every_partition_is_answered")
class OmitsTheLastPartition(LogMetadata):
    """The last of several partitions is missing."""

    def fetch_partitions(self, topics: Any, known: Any) -> Any:
        infos = list(super().fetch_partitions(topics, known))
        return infos[:-1] if len(infos) == 3 else infos


@caught_by("every_partition_is_answered")
class ReturnsAPartitionTwice(LogMetadata):
    """The first of several partitions is returned twice."""

    def fetch_partitions(self, topics: Any, known: Any) -> Any:
        infos = list(super().fetch_partitions(topics, known))
        return [*infos, infos[0]] if len(infos) == 3 else infos


@caught_by("bounds_are_true")
class ReturnsTheLastOffsetAsLatest(LogMetadata):
    """Latest is the offset of the last message, not of the next."""

    def fetch_partitions(self, topics: Any, known: Any) -> Any:
        return [
            replace(info, latest=max(info.earliest, (info.latest or 0) - 1))
            for info in super().fetch_partitions(topics, known)
        ]


@caught_by("offsets_rise_and_nothing_is_missing")
class ReturnsALatestTooLarge(LogMetadata):
    """Latest is too large by one."""

    def fetch_partitions(self, topics: Any, known: Any) -> Any:
        return [
            replace(info, latest=(info.latest or 0) + 1)
            for info in super().fetch_partitions(topics, known)
        ]


@caught_by("bounds_of_a_few_equal_those_of_all")
class ReturnsOtherBoundsForAFew(LogMetadata):
    """`fetch_bounds` returns other bounds than `fetch_partitions`."""

    def fetch_bounds(self, partitions: Any) -> Any:
        infos = super().fetch_bounds(partitions)
        if len(next(iter(partitions)).topic) and len(infos) == 1:
            number = infos[0].partition.id
            return [replace(infos[0], earliest=1)] if number == 2 else infos
        return infos


class _Remembers(LogMetadata):
    """Keeps its first answer."""

    _answer: list[PartitionInfo] | None = None

    def remembered(self, topics: Any, known: Any) -> list[PartitionInfo]:
        if self._answer is None:
            self._answer = list(LogMetadata.fetch_partitions(self, topics, known))
        return self._answer


@caught_by("bounds_never_go_back")
class CachesItsFirstBounds(_Remembers):
    """A provider returns its first bounds for ever."""

    def fetch_partitions(self, topics: Any, known: Any) -> Any:
        now = super().fetch_partitions(topics, known)
        kept = self.remembered(topics, known)
        if len(kept) == len(now) == 1 and kept[0].latest == 0:
            return kept
        return now


@caught_by("retention_moves_earliest_alone")
class ReturnsAnEarliestTooSmall(LogMetadata):
    """After truncation earliest is too small by one."""

    def fetch_partitions(self, topics: Any, known: Any) -> Any:
        return [
            replace(info, earliest=info.earliest - (info.earliest == 15))
            for info in super().fetch_partitions(topics, known)
        ]


@caught_by("growth_is_found")
class CachesTheNumberOfPartitions(_Remembers):
    """Partitions that are added later are not found."""

    def fetch_partitions(self, topics: Any, known: Any) -> Any:
        now = super().fetch_partitions(topics, known)
        count = len(self.remembered(topics, known))
        return now[:count] if count == 2 else now


@caught_by("metadata_calls_consume_nothing")
class DeletesAMessageByMetadata(LogMetadata):
    """Fetching the schema deletes the first message."""

    def fetch_schema(self, topic: str) -> Any:
        log = self._topics.open(topic)
        partition = log.bounds()[0]
        if partition.latest == 10:
            log.truncate({0: partition.earliest + 1})
        return super().fetch_schema(topic)


@caught_by("an_empty_stream_has_its_schema")
class TakesTheSchemaFromTheFirstRow(LogMetadata):
    """An empty stream has another schema."""

    def fetch_schema(self, topic: str) -> Any:
        log = self._topics.open(topic)
        if len(log.bounds()) == 1 and log.bounds()[0].latest == 0:
            return pa.schema([pa.field("number", pa.null())])
        return super().fetch_schema(topic)


@caught_by("lag_grows_while_the_reader_is_idle")
class CachesLatestForLag(LogMetadata):
    """Latest is cached after the first computation of lag."""

    _latest: int | None = None

    def fetch_partitions(self, topics: Any, known: Any) -> Any:
        infos = list(super().fetch_partitions(topics, known))
        if known and len(infos) == 1 and infos[0].latest == 10:
            return [replace(infos[0], latest=5)]
        return infos


@caught_by("a_recreated_topic_has_another_incarnation")
class HasNoIncarnation(LogMetadata):
    """Offsets before and after recreation cannot be distinguished."""

    def fetch_partitions(self, topics: Any, known: Any) -> Any:
        return [
            replace(info, incarnation=None)
            for info in super().fetch_partitions(topics, known)
        ]


class _NamedMetadata(LogMetadata):
    def fetch_partitions(self, topics: Any, known: Any) -> Any:
        return [
            replace(info, incarnation=info.partition.topic)
            for info in super().fetch_partitions(topics, known)
        ]


class _NamedConsumer(LogConsumer):
    def fetch_messages(self, start: int, end: Any, limits: FetchLimits) -> Fetched:
        fetched = super().fetch_messages(start, end, limits)
        return replace(fetched, incarnation=self._partition.topic)


@caught_by("a_recreated_topic_has_another_incarnation")
class UsesTheTopicNameAsIncarnation(ZooConsumers):
    """The incarnation is the topic's name, which does not change on recreation."""

    CONSUMER: ClassVar[Any] = _NamedConsumer
    METADATA: ClassVar[Any] = _NamedMetadata


class _AnyLogConsumer(LogConsumer):
    """Reads the log that has the topic's name now; its results have no incarnation."""

    store: Any = None

    def fetch_messages(self, start: int, end: Any, limits: FetchLimits) -> Fetched:
        self._log = self.store.open(self._partition.topic)
        return replace(super().fetch_messages(start, end, limits), incarnation=None)


class _FirstIncarnation(LogMetadata):
    def __init__(self, factory: LogConsumerFactory) -> None:
        super().__init__(factory)
        self._first: dict[Any, Any] = {}

    def fetch_incarnations(self, partitions: Any) -> Any:
        found = super().fetch_incarnations(partitions)
        return {p: self._first.setdefault(p, found[p]) for p in found}


@caught_by("a_recreated_topic_is_not_continued")
class CachesIncarnations(ZooConsumers):
    """Results have no incarnation, and the metadata returns the first one it had."""

    CONSUMER: ClassVar[Any] = _AnyLogConsumer
    METADATA: ClassVar[Any] = _FirstIncarnation

    def create_partition_level_consumer(self, *arguments: Any, **more: Any) -> Any:
        consumer = super().create_partition_level_consumer(*arguments, **more)
        consumer.store = self.store()  # type: ignore[attr-defined]
        return consumer


@caught_by("a_provider_is_thread_safe")
class SupportsOneThreadOnly(LogMetadata):
    """Two simultaneous calls of a provider fail."""

    def __init__(self, factory: LogConsumerFactory) -> None:
        super().__init__(factory)
        self._fetch_loop = False

    def fetch_partitions(self, topics: Any, known: Any) -> Any:
        if self._fetch_loop:
            msg = "already asking"
            raise RuntimeError(msg)
        self._fetch_loop = True
        try:
            time.sleep(0.001)
            return super().fetch_partitions(topics, known)
        finally:
            self._fetch_loop = False


@caught_by("closing_wakes_a_blocked_fetch")
class IgnoresWake(LogConsumer):
    """It defines `wake`, which has no effect."""

    def fetch_messages(self, start: int, end: Any, limits: FetchLimits) -> Fetched:
        # Later than a close may be, and no longer: the kit waits for it.
        timeout = min(limits.timeout, 1.5)
        return super().fetch_messages(start, end, replace(limits, timeout=timeout))

    def wake(self) -> None:
        return


@caught_by("unused_objects_leave_nothing_open")
class LeavesAFileOpen(LogConsumer):
    """Every consumer opens a file, and none closes it."""

    def __init__(self, log: Any, partition: Any, fields: Any) -> None:
        super().__init__(log, partition, fields)
        _LEFT.append(Path(__file__).open())  # noqa: SIM115 - the defect


@caught_by("unused_objects_leave_nothing_open")
class LeavesAThreadRunning(LogMetadata):
    """Every provider starts a thread that is never stopped."""

    def __init__(self, factory: LogConsumerFactory) -> None:
        super().__init__(factory)
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()


@caught_by("unused_objects_leave_nothing_open")
class LeavesAChildRunning(LogConsumer):
    """Every consumer starts a process that is never stopped."""

    def __init__(self, log: Any, partition: Any, fields: Any) -> None:
        super().__init__(log, partition, fields)
        command = [sys.executable, "-S", "-c", "import time; time.sleep(20)"]
        _LEFT.append(subprocess.Popen(command))


_LEFT: list[Any] = []


@caught_by("a_factory_pickles")
class HoldsALock(ZooConsumers):
    """The factory has an attribute that does not pickle."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self._lock = threading.Lock()

    def __reduce__(self) -> Any:
        return object.__reduce_ex__(self, 2)


@caught_by("batches_outlive_their_consumer")
class OverwritesReturnedRows(LogConsumer):
    """Rows are in a buffer that is overwritten when the consumer is closed."""

    _buffers: ClassVar[list[bytearray]] = []

    def fetch_messages(self, start: int, end: Any, limits: FetchLimits) -> Fetched:
        fetched = super().fetch_messages(start, end, limits)
        if fetched.rows is None or fetched.rows.num_rows != 50:
            return fetched
        memory = bytearray(fetched.rows.column(0).buffers()[1].to_pybytes())
        self._buffers.append(memory)
        column = pa.Array.from_buffers(pa.int64(), 50, [None, pa.py_buffer(memory)])
        rows = pa.record_batch([column], schema=fetched.rows.schema)
        return replace(fetched, rows=rows)

    def close(self) -> None:
        for memory in self._buffers:
            memory[:] = bytes(len(memory))
        self._buffers.clear()


@caught_by("a_loss_is_recorded_when_the_policy_continues")
class NeverMovesEarliest(LogMetadata):
    """Earliest stays zero when the source deletes fifty messages."""

    def fetch_partitions(self, topics: Any, known: Any) -> Any:
        return [
            replace(info, earliest=0 if info.earliest == 50 else info.earliest)
            for info in super().fetch_partitions(topics, known)
        ]


@caught_by("a_repeated_start_replays_after_rows")
class ContinuesInsteadOfReplaying(LogConsumer):
    """The same start with the same limits continues instead of replaying."""

    _last: tuple[int, int] | None = None

    def fetch_messages(self, start: int, end: Any, limits: FetchLimits) -> Fetched:
        if limits.max_rows == 10 and self._last is not None and start == self._last[0]:
            fetched = super().fetch_messages(self._last[1], end, limits)
            assert fetched.rows is not None
            return replace(fetched, offsets=pa.arange(start, start + 10))
        fetched = super().fetch_messages(start, end, limits)
        self._last = (start, fetched.next_offset)
        return fetched


@caught_by("an_empty_result_is_a_batch_with_its_state")
class RaisesWhenIdle(LogConsumer):
    """A fetch without messages is an error."""

    def fetch_messages(self, start: int, end: Any, limits: FetchLimits) -> Fetched:
        fetched = super().fetch_messages(start, end, limits)
        if fetched.rows is None and start > 0:
            msg = "no more data"
            raise EOFError(msg)
        return fetched


@caught_by("an_unknown_topic_is_not_found")
class LeaksForeignErrors(LogMetadata):
    """An unknown topic is a KeyError that is not translated."""

    def fetch_partitions(self, topics: Any, known: Any) -> Any:
        for topic in topics:
            if topic not in self._topics.names():
                raise KeyError(topic)
        return super().fetch_partitions(topics, known)


@caught_by("a_start_beyond_latest_is_out_of_range")
class ExtendsLatestToTheStart(LogMetadata):
    """Latest is never below the requested start."""

    def fetch_bounds(self, partitions: Any) -> Any:
        return [
            replace(info, latest=10_000 if info.latest == 5 else info.latest)
            for info in super().fetch_bounds(partitions)
        ]


@caught_by("an_empty_result_is_a_batch_with_its_state")
class GoesBackWhenIdle(LogConsumer):
    """An empty result moves back by one."""

    def fetch_messages(self, start: int, end: Any, limits: FetchLimits) -> Any:
        fetched = super().fetch_messages(start, end, limits)
        if fetched.rows is None and start == 5:
            rows = pa.record_batch([pa.array([0])], schema=self._log.schema)
            return replace(fetched, rows=rows, state=BatchState.DATA)
        return fetched


@caught_by("reading_moves_the_metrics_by_what_was_read")
class ReportsNoBytes(LogConsumer):
    """Results have size 0."""

    def fetch_messages(self, start: int, end: Any, limits: FetchLimits) -> Any:
        return replace(super().fetch_messages(start, end, limits), size=0)


@caught_by("reading_moves_the_metrics_by_what_was_read")
class CountsResultsAsMessages(LogConsumer):
    """A result counts as one message, whatever it contains."""

    def fetch_messages(self, start: int, end: Any, limits: FetchLimits) -> Any:
        fetched = super().fetch_messages(start, end, limits)
        if fetched.rows is None:
            return fetched
        return replace(fetched, unfiltered_count=1)


@caught_by("the_lag_reaches_zero_at_the_end")
class ReportsALatestNeverReached(LogConsumer):
    """The latest offset of results with rows and without is too large by five."""

    def fetch_messages(self, start: int, end: Any, limits: FetchLimits) -> Any:
        fetched = super().fetch_messages(start, end, limits)
        latest = None if fetched.latest is None else fetched.latest + 5
        return replace(fetched, latest=latest)


@caught_by("reads_of_any_size_are_whole")
class DropsRowsBeyondABlock(LogConsumer):
    """Of each result only the first 512 rows are returned, and the others skipped."""

    def fetch_messages(self, start: int, end: Any, limits: FetchLimits) -> Fetched:
        fetched = super().fetch_messages(start, end, limits)
        if fetched.rows is None:
            return fetched
        return replace(fetched, rows=fetched.rows.slice(0, 512))


@caught_by("small_byte_limits_return_the_same_rows")
class DropsRowsBeyondMaxBytes(LogConsumer):
    """Rows beyond `max_bytes` are left out, and skipped."""

    def fetch_messages(self, start: int, end: Any, limits: FetchLimits) -> Fetched:
        whole = replace(limits, max_bytes=2**20)
        fetched = super().fetch_messages(start, end, whole)
        if fetched.rows is None or fetched.rows.nbytes <= limits.max_bytes:
            return fetched
        return replace(fetched, rows=fetched.rows.slice(0, 1))


class _Deaf(LogConsumer):
    def wake(self) -> None:
        pass


def _unpickled(config: Any) -> ZooConsumers:
    made = WakesUntilPickled(config)
    made.CONSUMER = _Deaf  # type: ignore[misc]  # of this factory only
    return made


@caught_by("a_fetch_of_the_authors_ends_by_wake")
class WakesUntilPickled(ZooConsumers):
    """Consumers of a factory that went through pickle ignore `wake`."""

    def __reduce__(self) -> Any:
        return _unpickled, (self.config,)


class _Descriptor:
    """A file that is closed when nothing refers to it."""

    def __init__(self) -> None:
        self._number = os.open(os.devnull, os.O_RDONLY)

    def __del__(self) -> None:
        os.close(self._number)


@caught_by("closed_consumers_keep_no_connection")
class LeavesClosingToTheCollector(LogConsumer):
    """`close` leaves open what the first fetch opens."""

    def fetch_messages(self, start: int, end: Any, limits: FetchLimits) -> Fetched:
        self._opened = _Descriptor()
        return super().fetch_messages(start, end, limits)


@caught_by("closing_a_source_leaves_the_others")
class ClosesWhatIsShared(ZooConsumers):
    """Factories of one configuration share a connection, and the first closes it."""

    _OPEN: ClassVar[dict[str, list[bool]]] = {}

    def create_partition_level_consumer(
        self, client_id: str, partition: Any, fields_to_read: Any = None
    ) -> Any:
        shared = self._OPEN.setdefault(self.config["store"], [True])
        made = super().create_partition_level_consumer(
            client_id, partition, fields_to_read
        )
        fetch = made.fetch_messages

        def fetch_while_open(start: int, end: Any, limits: FetchLimits) -> Fetched:
            if not shared[0]:
                msg = "the connection was closed"
                raise PermanentError(msg)
            return fetch(start, end, limits)

        made.fetch_messages = fetch_while_open  # type: ignore[method-assign]
        return made

    def close(self) -> None:
        for shared in filter(None, [self._OPEN.pop(self.config["store"], None)]):
            shared[0] = False
        super().close()


@caught_by("a_message_that_arrives_during_a_fetch_is_returned")
class SkipsWhatArrivesDuringAFetch(LogConsumer):
    """A fetch that has waited continues after the messages that ended its wait."""

    def fetch_messages(
        self, start: int, end: int | None, limits: FetchLimits
    ) -> Fetched:
        fetched = super().fetch_messages(start, end, replace(limits, timeout=0.0))
        if fetched.rows is not None:
            return fetched
        number = self._partition.id
        self._log.wait(number, start, limits.timeout, self._woken)
        latest = self._log.bounds()[number].latest
        return replace(fetched, next_offset=max(start, latest), latest=latest)
