"""Injects faults into any backend, with a simulated clock, for users' tests.

Injected faults stay within the contract: a reader that retries still gets every row
once, in order. The same seed produces the same faults, by partition::

    with streamfactory.open("clicks", faults=Faults(seed=7, fail=0.2, tear=0.5)) as s:
        ...
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, final

import pyarrow as pa

from streamfactory.spi import (
    BatchState,
    Claims,
    CommitMessage,
    ConnectionFailed,
    ConsumerFactory,
    DataLossError,
    Fetched,
    FetchLimits,
    LastCommit,
    MetadataProvider,
    Outgoing,
    Partition,
    PartitionLevelConsumer,
    Position,
    ProducerFactory,
    StreamCommitter,
    StreamTimeout,
    StreamWriter,
    WriteContext,
    envelope_schema,
)
from streamfactory.spi.arguments import SECONDS, Kind, having, instance
from streamfactory.wiring.core.clock import Clock
from streamfactory.wiring.reading.clipping import Answer, cut

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfactory.spi import CheckpointStore, End, StreamLevelConsumer


@final
class SimulatedClock(Clock):
    """Real time, except that waiting only advances the clock."""

    def __init__(self) -> None:
        self._ahead = 0.0
        self._lock = threading.Lock()

    def now(self) -> float:
        """Return monotonic seconds."""
        return time.monotonic() + self._ahead

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Advance by ``seconds`` immediately."""
        with self._lock:
            self._ahead += max(0.0, seconds)
        return event.is_set()


def _rate(value: Any) -> float:
    rate: float = SECONDS.convert(value)
    if rate > 1:
        raise ValueError
    return rate


_RATE: Final = Kind("pass a probability between 0 and 1", _rate)
_COUNTER: Final = instance(Counter, taken="pass a collections.Counter, or nothing")
_CLOCK: Final = having("wait", taken="pass a SimulatedClock, or nothing")


@final
@dataclass(slots=True)
class Faults:
    """Rates of injected faults: the probability that a call is affected.

    Reading: a call fails before it is made (``fail``); its result is lost (``drop``);
        rows of the previous result are repeated (``duplicate``); only a part is
        returned (``tear``); the source throttles (``throttle``). Writing: a call fails
        before it is made, or the reply of a commit is lost (``drop``).
    """

    seed: int = 0
    fail: float = 0.0
    drop: float = 0.0
    duplicate: float = 0.0
    tear: float = 0.0
    throttle: float = 0.0
    delay: float = 0.0
    """Maximum delay of a call, in seconds."""
    clock: Clock = field(default_factory=SimulatedClock)
    injected: Counter[str] = field(default_factory=Counter)
    """Number of injected faults by kind."""
    _dice: dict[str, random.Random] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        for name in ("fail", "drop", "duplicate", "tear", "throttle"):
            setattr(self, name, _RATE.checked(name, getattr(self, name)))
        self.delay = SECONDS.checked("delay", self.delay)
        _CLOCK.checked("clock", self.clock)
        _COUNTER.checked("injected", self.injected)

    def around_consumers(self, factory: ConsumerFactory) -> ConsumerFactory:
        """Return the factory, with faults in all objects that it creates."""
        return _FaultyConsumerFactory(factory, self)

    def around_producers(self, factory: ProducerFactory) -> ProducerFactory:
        """Return the factory, with faults in all objects that it creates."""
        return _FaultyProducerFactory(factory, self)

    def dice(self, name: str) -> random.Random:
        """Return the random generator of one partition, writer and so on.

        They share no state, because their order of calls depends on timing.
        """
        if name not in self._dice:
            seed = f"{self.seed} {name}"
            self._dice[name] = random.Random(seed)  # noqa: S311 - must be reproducible
        return self._dice[name]

    def hits(self, fault: str, name: str) -> bool:
        """Whether this call is affected."""
        rate: float = getattr(self, fault)
        hit = self.dice(name).random() < rate
        self.injected[fault] += hit
        return hit

    def before(self, name: str) -> None:
        """Delay a call, or fail it before it is made."""
        if self.delay:
            self.clock.wait(_NEVER, self.dice(name).uniform(0, self.delay))
        if self.hits("fail", name):
            msg = "injected: the source is unreachable"
            raise ConnectionFailed(msg)


_NEVER = threading.Event()


class _FaultyConsumer(PartitionLevelConsumer):
    def __init__(
        self, inner: PartitionLevelConsumer, faults: Faults, name: str
    ) -> None:
        self._inner = inner
        self._faults = faults
        self._name = name
        self._previous: int | None = None

    def fetch_messages(
        self, start: int, end: int | None, limits: FetchLimits
    ) -> Fetched:
        faults, name = self._faults, self._name
        faults.before(name)
        if faults.hits("throttle", name):
            return Fetched(None, start, state=BatchState.THROTTLED)
        fetched = self._fetch(start, end, limits)
        if faults.hits("drop", name):
            msg = "injected: the result was lost"
            raise StreamTimeout(msg)
        if (
            fetched.rows is not None
            and fetched.rows.num_rows > 1
            and faults.hits("tear", name)
        ):
            kept = faults.dice(name).randint(1, fetched.rows.num_rows - 1)
            fetched = _torn(fetched, start, kept)
        self._previous = start
        return fetched

    def close(self) -> None:
        self._inner.close()

    def _fetch(self, start: int, end: int | None, limits: FetchLimits) -> Fetched:
        early = self._previous
        if (
            early is None
            or early >= start
            or not self._faults.hits("duplicate", self._name)
        ):
            return self._inner.fetch_messages(start, end, limits)
        try:
            fetched = self._inner.fetch_messages(early, end, limits)
        except DataLossError:  # the previous rows were removed: nothing to repeat
            return self._inner.fetch_messages(start, end, limits)
        if fetched.rows is None or fetched.offsets is not None:
            return fetched
        return replace(fetched, offsets=_offsets(fetched, early))


def _offsets(fetched: Fetched, start: int) -> pa.Int64Array:
    assert fetched.rows is not None
    if fetched.offsets is not None:
        return fetched.offsets
    if fetched.rows.schema.equals(envelope_schema()):
        return fetched.rows.column("offset")
    return pa.arange(start, start + fetched.rows.num_rows)


def _torn(fetched: Fetched, start: int, rows: int) -> Fetched:
    whole = Answer.of(start, fetched, _offsets(fetched, start))
    part, rest, next_offset = cut(whole, None, FetchLimits(rows, 2**62, 0.0))
    if rest is None:
        return fetched
    return replace(
        fetched,
        rows=part.rows,
        offsets=part.offsets,
        next_offset=next_offset,
        unfiltered_count=None,
        size=None,
    )


class _FaultyMetadata(MetadataProvider):
    """Every call may fail; results are those of the backend."""

    def __init__(self, inner: MetadataProvider, faults: Faults) -> None:
        self._inner = inner
        self._faults = faults

    def fetch_partitions(self, topics: Any, known: Any) -> Any:
        self._faults.before("metadata")
        return self._inner.fetch_partitions(topics, known)

    def publish_position(self, group: str, position: Any) -> None:
        self._faults.before("metadata")
        self._inner.publish_position(group, position)

    def fetch_groups(self) -> Any:
        self._faults.before("metadata")
        return self._inner.fetch_groups()

    def fetch_positions(self, groups: Any) -> Any:
        self._faults.before("metadata")
        return self._inner.fetch_positions(groups)

    def replace_position(self, group: str, before: Any, after: Any) -> bool:
        self._faults.before("metadata")
        return self._inner.replace_position(group, before, after)

    def fetch_bounds(self, partitions: Any) -> Any:
        self._faults.before("metadata")
        return self._inner.fetch_bounds(partitions)

    def fetch_incarnations(self, partitions: Any) -> Any:
        self._faults.before("metadata")
        return self._inner.fetch_incarnations(partitions)

    def fetch_offsets_at(self, timestamp_ms: int, partitions: Any) -> Any:
        self._faults.before("metadata")
        return self._inner.fetch_offsets_at(timestamp_ms, partitions)

    def fetch_commits(self, partition: Partition, start: int, end: int) -> int | None:
        return self._inner.fetch_commits(partition, start, end)

    def fetch_extents(
        self, partition: Partition, start: int, end: int, most: int | None
    ) -> Any:
        self._faults.before("metadata")
        return self._inner.fetch_extents(partition, start, end, most)

    def fetch_schema(self, topic: str) -> Any:
        self._faults.before("metadata")
        return self._inner.fetch_schema(topic)

    def fetch_topics(self) -> Sequence[str]:
        self._faults.before("metadata")
        return self._inner.fetch_topics()

    def close(self) -> None:
        self._inner.close()


class _FaultyConsumerFactory(ConsumerFactory):
    def __init__(self, inner: ConsumerFactory, faults: Faults) -> None:
        super().__init__(inner.config)
        self.SPARSE_OFFSETS = inner.SPARSE_OFFSETS  # type: ignore[misc]  # of this one
        self._inner = inner
        self._faults = faults

    def create_partition_level_consumer(
        self,
        client_id: str,
        partition: Partition,
        fields_to_read: Sequence[str] | None = None,
    ) -> PartitionLevelConsumer:
        name = f"consumer {partition}"
        self._faults.before(name)
        inner = self._inner.create_partition_level_consumer(
            client_id, partition, fields_to_read
        )
        return _FaultyConsumer(inner, self._faults, name)

    def create_metadata_provider(self, client_id: str) -> MetadataProvider:
        inner = self._inner.create_metadata_provider(client_id)
        return _FaultyMetadata(inner, self._faults)

    def create_stream_level_consumer(
        self, client_id: str, group_id: str
    ) -> StreamLevelConsumer | None:
        # A group's client cannot repeat lost messages: no faults are injected.
        return self._inner.create_stream_level_consumer(client_id, group_id)

    def acknowledge(self, position: Position) -> None:
        self._faults.before("acknowledge")
        self._inner.acknowledge(position)

    def create_checkpoint_store(self) -> CheckpointStore | None:
        return self._inner.create_checkpoint_store()

    def opening(self) -> bytes | None:
        return self._inner.opening()

    def claims(self) -> Claims:
        return self._inner.claims()

    def close(self) -> None:
        self._inner.close()


class _FaultyWriter(StreamWriter):
    def __init__(self, inner: StreamWriter, faults: Faults, name: str) -> None:
        self._inner = inner
        self._name = name
        self._faults = faults

    def write(self, outgoing: Outgoing) -> None:
        self._faults.before(self._name)
        self._inner.write(outgoing)

    def commit(self) -> Any:
        self._faults.before(self._name)
        return self._inner.commit()

    def wake(self) -> None:
        self._inner.wake()

    def abort(self) -> None:
        self._inner.abort()

    @property
    def end(self) -> End | None:
        return self._inner.end

    def close(self) -> None:
        self._inner.close()


class _FaultyCommitter(StreamCommitter):
    def __init__(self, inner: StreamCommitter, faults: Faults) -> None:
        self._inner = inner
        self._faults = faults

    def commit(
        self,
        epoch: int,
        messages: Sequence[CommitMessage],
        source_position: Position | None = None,
    ) -> LastCommit | None:
        self._faults.before("committer")
        return self._lost(self._inner.commit(epoch, messages, source_position))

    def replace(
        self,
        epoch: int,
        messages: Sequence[CommitMessage],
        source_position: Position | None = None,
    ) -> LastCommit | None:
        self._faults.before("committer")
        return self._lost(self._inner.replace(epoch, messages, source_position))

    def abort(self, epoch: int, messages: Sequence[CommitMessage]) -> None:
        self._inner.abort(epoch, messages)

    def last(self) -> LastCommit | None:
        self._faults.before("committer")
        return self._inner.last()

    def close(self) -> None:
        self._inner.close()

    def _lost(self, held: LastCommit | None) -> LastCommit | None:
        if self._faults.hits("drop", "committer"):
            msg = "injected: the reply of the commit was lost"
            raise StreamTimeout(msg)
        return held


class _FaultyProducerFactory(ProducerFactory):
    def __init__(self, inner: ProducerFactory, faults: Faults) -> None:
        super().__init__(inner.config)
        self._inner = inner
        self._faults = faults
        self.CARRIES = inner.CARRIES  # type: ignore[misc]  # as the one inside does

    def create_writer(self, context: WriteContext) -> StreamWriter:
        name = f"writer {context.task}"
        self._faults.before(name)
        return _FaultyWriter(self._inner.create_writer(context), self._faults, name)

    def create_committer(self, writer_id: str | None) -> StreamCommitter:
        self._faults.before("committer")
        return _FaultyCommitter(self._inner.create_committer(writer_id), self._faults)

    def fetch_last_commit(self, writer_id: str) -> LastCommit | None:
        self._faults.before("metadata")
        return self._inner.fetch_last_commit(writer_id)

    def fetch_partition_count(self, topic: str) -> int:
        self._faults.before("metadata")
        return self._inner.fetch_partition_count(topic)

    def fetch_schema(self, topic: str) -> pa.Schema | None:
        self._faults.before("metadata")
        return self._inner.fetch_schema(topic)

    def claims(self) -> Claims:
        return self._inner.claims()

    def end_stream(self, end: End) -> End | None:
        return self._inner.end_stream(end)

    def close(self) -> None:
        self._inner.close()
