"""Stream-level reading: a whole stream, shared among a group, with checkpoints."""

from __future__ import annotations

import re
import threading
import zlib
from abc import ABC, abstractmethod
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, TypeVar, final

from streamfactory.spi import (
    Checkpoint,
    CheckpointStore,
    ClosedError,
    Fetched,
    FetchLimits,
    OffsetOutOfRange,
    Position,
    PositionRefused,
)
from streamfactory.wiring.options.patterns import matching_topics
from streamfactory.wiring.reading.acknowledging import Acknowledger
from streamfactory.wiring.reading.batches import BatchMaker, checked_answer
from streamfactory.wiring.reading.bounds import Bounds
from streamfactory.wiring.reading.clipping import Answer
from streamfactory.wiring.reading.counters import Counters
from streamfactory.wiring.reading.losses import LossPolicy
from streamfactory.wiring.reading.rotation import Rotation
from streamfactory.wiring.reading.starts import starting_offsets
from streamfactory.wiring.writing.diverting import Letters

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from streamfactory.spi import (
        MessageBatch,
        Partition,
        PartitionInfo,
        StreamLevelConsumer,
    )
    from streamfactory.wiring.core.clock import Clock
    from streamfactory.wiring.reading.source import Source

T = TypeVar("T")
"""What a call of an author's code answers."""

_MEMBER: Final = re.compile(r"(0|[1-9][0-9]*)-of-([1-9][0-9]*)")


def instance_of(partition: Partition, instances: int) -> int:
    """Which of so many instances reads a partition.

    Depends on the partition alone, so that growth moves none; partitions of a topic are
    dealt out in turn, and topics begin at different instances.
    """
    return (partition.id + zlib.crc32(partition.topic.encode())) % instances


class GroupReader(ABC):
    """One member of a group of readers.

    Rows of one partition come in order; each row to one member, unless restarted; a
    restart goes on at the last `commit`. Not promised: an order among partitions, and
    that rows after the last `commit` do not come again.
    """

    @abstractmethod
    def next_batch(self, timeout: float) -> MessageBatch | None:
        """The next batch; None when none came within ``timeout`` seconds."""

    @abstractmethod
    def commit(self) -> Position:
        """Save the position after the last batch handed out; nothing else saves it.

        Raises:
            CheckpointFailed: permanent; the previous checkpoint still holds.
        """

    @property
    @abstractmethod
    def position(self) -> Position:
        """Next offset of each partition of this member, saved or not."""

    @property
    @abstractmethod
    def counters(self) -> Counters:
        """What this member has done so far."""

    @abstractmethod
    def close(self) -> None:
        """Close without committing."""


@final
class CheckpointedGroup(GroupReader):
    """The framework's own, for every backend: partition readers and a store.

    Members are named by number, not found out: instance k of n. When n changes, stop
    all of them first; then each partition goes on at its newest checkpoint, whichever
    member saved it.

    Args:
        source: The stream.
        store: Where checkpoints are kept.
        group: Name of the group.
        instance: This one, counted from 0.
        instances: How many there are.
        clock: Time.

    Raises:
        PositionRefused: permanent; a checkpoint is corrupt, foreign or newer.
    """

    def __init__(
        self,
        source: Source,
        store: CheckpointStore,
        group: str,
        *,
        instance: int,
        instances: int,
        clock: Clock,
    ) -> None:
        self._store = store
        self._group = group
        self._name = f"{instance}-of-{instances}"
        self._closed = threading.Event()
        self._gone = Counters()
        self._acknowledger = Acknowledger(source)
        self._letters = Letters(source, f"{group}/{self._name}", clock)
        try:
            self._begin(source, instance, instances, clock)
        except BaseException:
            with ExitStack() as last:
                last.callback(store.close)
                last.callback(self._letters.close)
            raise

    def _begin(
        self, source: Source, instance: int, instances: int, clock: Clock
    ) -> None:
        self._store.claim(self._group, self._name)
        saved = _Saved(self._group, self._store.load(self._group))
        self._generation = saved.generation

        def mine(partition: Partition) -> bool:
            return instance_of(partition, instances) == instance

        # The last run may have ended between its commit and this.
        self._acknowledger.acknowledge(
            saved.position.only({*filter(mine, saved.position)})
        )
        infos = source.metadata.partitions()
        starts = saved.starts(source, infos, mine)
        self._miss(source, saved.position, {i.partition for i in infos}, mine)
        self._rotation = Rotation(
            source,
            [info for info in infos if mine(info.partition)],
            starts,
            ends=None,
            incarnations=Position(starts, saved.position.incarnations).incarnations,
            mine=mine,
            refresh=source.config["metadata.refresh.millis"] / 1000,
            clock=clock,
        )

    def next_batch(self, timeout: float) -> MessageBatch | None:
        """See `GroupReader`."""
        batch = self._rotation.next_batch(timeout)
        if batch is not None:
            self._letters.add(batch)
        return batch

    def commit(self) -> Position:
        """See `GroupReader`."""
        if self._closed.is_set():
            msg = "the group reader is closed"
            raise ClosedError(msg)
        position = self.position
        self._letters.commit(position)
        checkpoint = Checkpoint(position, self._generation + 1)
        self._store.save(self._group, self._name, checkpoint)
        self._generation += 1
        self._acknowledger.acknowledge(position)
        self._rotation.begin_range()
        return position

    @property
    def position(self) -> Position:
        """See `GroupReader`."""
        return self._rotation.position

    @property
    def counters(self) -> Counters:
        """See `GroupReader`."""
        return self._rotation.counters + self._gone

    def close(self) -> None:
        """See `GroupReader`."""
        if not self._closed.is_set():
            self._closed.set()
            with ExitStack() as last:
                last.callback(self._store.close)
                last.callback(self._letters.close)
                last.callback(self._rotation.close)

    def _miss(
        self,
        source: Source,
        saved: Position,
        there: set[Partition],
        mine: Callable[[Partition], bool],
    ) -> None:
        """Tell of partitions that were read before and are no longer there."""
        for partition in sorted(set(saved) - there):
            if not mine(partition) or not _wanted(source, partition):
                continue
            loss = LossPolicy.of(source.config).vanished(
                partition, saved[partition], "after the last checkpoint"
            )
            self._gone.losses.append(loss)


class _Saved:
    """What the members of a group saved, whatever their number was."""

    def __init__(self, group: str, checkpoints: Mapping[str, Checkpoint]) -> None:
        self._members = [_member(group, name) for name in checkpoints]
        ordered = sorted(checkpoints.values(), key=lambda c: c.generation)
        self.generation = max((c.generation for c in ordered), default=0)
        self.position = Position()
        for one in ordered:
            self.position = self.position.merge(one.position)

    def starts(
        self,
        source: Source,
        infos: Sequence[PartitionInfo],
        mine: Callable[[Partition], bool],
    ) -> dict[Partition, int]:
        """Where a member begins with each of its partitions."""
        wanted = [info for info in infos if mine(info.partition)]
        starts = {
            i.partition: self.position.get(i.partition, i.earliest) for i in wanted
        }
        fresh = [p for p in starts if p not in self.position and not self._had(p)]
        if fresh:
            # Of all partitions: start options may name each of them.
            first = starting_offsets(
                source.config, source.metadata, infos, start=None, default="latest"
            )
            starts |= {partition: first[partition] for partition in fresh}
        return starts

    def _had(self, partition: Partition) -> bool:
        """Whether a member whose it would have been saved a checkpoint without it.

        Then it is new, and begins at its earliest. Otherwise nobody has read it yet,
        and the start options hold.
        """
        return any(instance_of(partition, n) == k for k, n in self._members)


def _member(group: str, name: str) -> tuple[int, int]:
    found = _MEMBER.fullmatch(name)
    if found is None or int(found[1]) >= int(found[2]):
        msg = f"the group {group!r} has a checkpoint of {name!r}, which is no member"
        raise PositionRefused(msg)
    return int(found[1]), int(found[2])


def _wanted(source: Source, partition: Partition) -> bool:
    """Whether the stream, as it is configured, still has the partition's topic."""
    config = source.config
    if "assign" in config:
        return False  # the user says which: those that are not there fail by themselves
    if "subscribePattern" in config:
        return bool(matching_topics(config["subscribePattern"], [partition.topic]))
    return partition.topic in source.metadata.topics()


@final
class AuthoredGroup(GroupReader):
    """A backend's own group member, behind the same checks as a `Reader`.

    Its answers are checked, cut to the limits and shaped (rules R1, R5, D4), and the
    loss policy is the framework's (rule R7). One thread at a time.

    Args:
        source: The stream.
        author: The backend's.
    """

    def __init__(self, source: Source, author: StreamLevelConsumer) -> None:
        self._source = source
        self._author = author
        self._policy = LossPolicy.of(source.config)
        self._members: dict[Partition, _Assigned] = {}
        self._counters = Counters()
        self._closed = threading.Event()
        # Members of such a group have no names that survive a restart.
        self._letters = Letters(source, None, source.clock)

    def next_batch(self, timeout: float) -> MessageBatch | None:
        """See `GroupReader`."""
        config = self._source.config
        limits = FetchLimits(config["batch.rows"], config["batch.bytes"], timeout)
        for one in self._assigned().values():
            if one.maker.rest is not None:
                return self._handed(one.rest(limits))
        self._counters.fetches += 1
        try:
            found = self._call(lambda: self._author.fetch_messages(limits))
        except OffsetOutOfRange as error:
            if error.partition is None or error.offset is None:
                raise
            one = self._member(error.partition)
            return self._handed(one.lost(error.offset, error, limits))
        self._assigned()
        if found is None:
            return None
        partition, fetched = found
        fetched = self._call(lambda: checked_answer(fetched))
        one = self._member(partition)
        return self._handed(self._call(lambda: one.batch(fetched, limits)))

    def commit(self) -> Position:
        """See `GroupReader`; what was taken from this member meanwhile is left out."""
        position = self.position
        self._letters.commit(position)
        self._call(lambda: self._author.commit(position))
        for one in self._members.values():
            one.maker.begin_range()
        return position

    @property
    def position(self) -> Position:
        """See `GroupReader`."""
        known = {p: o for p, o in self._assigned().items() if o.next is not None}
        return Position(
            {p: one.next or 0 for p, one in known.items()},
            {p: o.bounds.incarnation for p, o in known.items() if o.bounds.incarnation},
        )

    @property
    def counters(self) -> Counters:
        """See `GroupReader`."""
        counters = (one.counters for one in self._members.values())
        return sum(counters, self._counters)

    def close(self) -> None:
        """See `GroupReader`."""
        if self._closed.is_set():
            return
        with ExitStack() as last:
            for one in self._members.values():
                last.callback(one.maker.close)
            last.callback(self._letters.close)
            last.callback(self._closed.set)
            last.callback(self._call, self._author.close)

    def _handed(self, batch: MessageBatch) -> MessageBatch:
        self._letters.add(batch)
        return batch

    def _member(self, partition: Partition) -> _Assigned:
        found = self._members.get(partition)
        if found is None:
            found = self._members[partition] = _Assigned(
                self._source,
                partition,
                self._policy,
                lambda offset: self._call(lambda: self._author.seek(partition, offset)),
                self._closed,
            )
        return found

    def _assigned(self) -> dict[Partition, _Assigned]:
        """The partitions of this member; those that another one reads now are dropped.

        Such a one may come back, further on.
        """
        if not self._closed.is_set():
            mine = self._call(self._author.assignment)
            for partition in set(self._members) - set(mine):
                one = self._members.pop(partition)
                self._counters += one.counters
                one.maker.close()
        return self._members

    def _call(self, function: Callable[[], T]) -> T:
        if self._closed.is_set():
            msg = "the group reader is closed"
            raise ClosedError(msg, stream=self._source.config.name)
        with self._source.guard.border():
            return function()


@final
class _Assigned:
    """One partition of a backend's group member.

    Args:
        source: The stream.
        partition: Which.
        policy: What a loss leads to.
        seek: Makes the backend continue at another offset.
        closed: Set when the group reader is closed.
    """

    def __init__(
        self,
        source: Source,
        partition: Partition,
        policy: LossPolicy,
        seek: Callable[[int], None],
        closed: threading.Event,
    ) -> None:
        self._partition = partition
        self._seek = seek
        self.counters = Counters()
        self.next: int | None = None
        """Offset of the next message; None before the first answer."""
        self.bounds = Bounds(
            partition, policy, look_up=lambda: source.metadata.info(partition, closed)
        )
        shaper = source.shaper(partition)
        self.maker = BatchMaker(partition, shaper, self.bounds, self.counters)

    def batch(self, fetched: Fetched, limits: FetchLimits) -> MessageBatch:
        """The batch of an answer."""
        where = self.next
        if where is not None:
            elsewhere = self.bounds.redirect(where, fetched)
            if elsewhere is not None:
                self._seek(elsewhere)
                left = Fetched(None, elsewhere, losses=fetched.losses)
                return self._made(where, elsewhere, limits, Answer.of(elsewhere, left))
        count = 0 if fetched.rows is None else fetched.rows.num_rows
        # Rows without offsets end at the next one: nobody said where they begin.
        answer = self.maker.accept(fetched.next_offset - count, fetched, drop=False)
        first = answer.offset(0) if answer.num_rows else fetched.next_offset
        if where is not None:
            self.bounds.check_gap(where, first, fetched)
        self.bounds.incarnation = self.bounds.incarnation or fetched.incarnation
        # The source chooses the place: it may be before the last one, after a change
        # of members.
        start = first if where is None else min(where, first)
        return self._made(start, start, limits, answer)

    def rest(self, limits: FetchLimits) -> MessageBatch:
        """What the limits cut off the last batch."""
        answer, self.maker.rest = self.maker.rest, None
        assert answer is not None
        assert self.next is not None
        return self._made(self.next, self.next, limits, answer)

    def lost(
        self, where: int, error: OffsetOutOfRange, limits: FetchLimits
    ) -> MessageBatch:
        """Continue elsewhere, with a record, or raise (rule R7)."""
        elsewhere = self.bounds.check(where, refusal=error)
        self._seek(elsewhere)
        answer = Answer.of(elsewhere, Fetched(None, elsewhere))
        return self._made(where, elsewhere, limits, answer)

    def _made(
        self, start: int, where: int, limits: FetchLimits, answer: Answer
    ) -> MessageBatch:
        self.next = where
        try:
            batch = self.maker.batch(start, where, None, limits, answer)
        except BaseException:
            # What failed has not happened: the next call does it again.
            self.maker.rest = answer
            raise
        self.next = batch.next_offset
        return batch
