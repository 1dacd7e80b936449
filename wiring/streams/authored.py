"""A backend's own group members, with the checks of a reader."""

from __future__ import annotations

import threading
from contextlib import ExitStack, suppress
from time import perf_counter
from typing import TYPE_CHECKING, Final, TypeVar, final

from streamfactory.spi import (
    ClosedError,
    Fetched,
    FetchLimits,
    IncarnationChanged,
    OffsetOutOfRange,
    Position,
    StreamError,
)
from streamfactory.spi.consumer import NO_STARTS
from streamfactory.wiring.metrics.registry import registry
from streamfactory.wiring.reading.batches import BatchMaker, checked_answer, refuse_torn
from streamfactory.wiring.reading.bounds import Bounds
from streamfactory.wiring.reading.clipping import Answer
from streamfactory.wiring.reading.counters import Counters, ReadTally
from streamfactory.wiring.reading.losses import LossPolicy
from streamfactory.wiring.streams.groups import GroupReader, is_reached
from streamfactory.wiring.streams.incarnations import MemberIncarnations
from streamfactory.wiring.writing.diverting import Letters

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from streamfactory.spi import (
        DataLossError,
        MessageBatch,
        Partition,
        StreamLevelConsumer,
    )
    from streamfactory.wiring.reading.source import Source

T = TypeVar("T")
"""What a call of an author's code answers."""

_SETTLED: Final = 10.0
"""Seconds without partitions after which others have them all. A cooperative group
assigns none at first, until the others have given up theirs: by their next heartbeats,
which are 3 to 5 seconds apart."""


@final
class AuthoredGroup(GroupReader):
    """A backend's own group member, with the same checks as a `Reader`.

    Results are checked, cut to the limits and converted (rules R1, R5, D4), and the
    framework's loss policy applies (rule R7). Not thread-safe.

    Args:
        source: The stream.
        author: The backend's member.
    """

    def __init__(self, source: Source, author: StreamLevelConsumer) -> None:
        self._source = source
        self._author = author
        self._policy = LossPolicy.of(source.config)
        self._throttle = source.throttle
        self._members: dict[Partition, _Assigned] = {}
        self._starts = NO_STARTS
        self._counters = Counters()
        self._next_look = 0.0
        self._without_since: float | None = None
        """Since when the group has assigned no partition to this member."""
        self._closed = threading.Event()
        self._incarnations = MemberIncarnations(source, self._closed)
        self._waiting: tuple[Partition, Fetched] | None = None
        """A result whose incarnation is not confirmed."""
        # Members of such a group have no ids that survive a restart.
        self._letters = Letters(source, None, source.clock)

    def next_batch(self, timeout: float) -> MessageBatch | None:
        """See `GroupReader`."""
        config = self._source.config
        limits = FetchLimits(config["batch.rows"], config["batch.bytes"], timeout)
        if self._throttle is not None:
            slowed = self._throttle.admit(limits, self._closed)
            if slowed is None:
                return None
            limits = slowed
        for one in self._assigned().values():
            if one.maker.rest is not None:
                return self._handed(one.rest(limits))
        try:
            self._refuse_recreated()
            if self._waiting is None:
                self._fetch(limits)
                self._refuse_recreated()
            if self._waiting is None:
                self._look_at_partitions()
                return None
            partition, fetched = self._waiting
            fetched = self._call(lambda: checked_answer(fetched))
            self._incarnations.confirm(partition, fetched)
            self._waiting = None
            self._refuse_recreated({partition})
        except (OffsetOutOfRange, IncarnationChanged) as error:
            return self._lost(error, limits)
        one = self._member(partition)
        return self._handed(self._call(lambda: one.batch(fetched, limits)))

    def commit(self) -> Position:
        """See `GroupReader`; without partitions that were revoked meanwhile."""
        position = self.position
        self._incarnations.verify(position)
        if self._policy.fails:
            self._refuse_recreated()
        position = position.only(set(position) - set(self._incarnations.changed))
        self._letters.commit(position)
        self._call(lambda: self._author.commit(position))
        saved = self._call(self._author.committed)
        if saved is not None:
            # One that was assigned again begins at its last commit.
            self._drop(set(position) - set(saved))
            position = position.only(set(saved))
        for one in self._members.values():
            one.maker.begin_range()
        return position

    @property
    def position(self) -> Position:
        """See `GroupReader`."""
        known = {p: o for p, o in self._assigned().items() if o.next is not None}
        read = Position(
            {p: one.next or 0 for p, one in known.items()},
            {p: o.bounds.incarnation for p, o in known.items() if o.bounds.incarnation},
        )
        return self._starts.merge(read)

    @property
    def counters(self) -> Counters:
        """See `GroupReader`."""
        counters = (one.counters for one in self._members.values())
        return sum(counters, self._counters)

    def has_read(self, ends: Mapping[Partition, int | None]) -> bool:
        """See `GroupReader`; without partitions, whether others have them all."""
        mine, position = self._call(self._author.assignment), self.position
        if not mine:
            return self._has_none()
        self._without_since = None
        return all(is_reached(position.get(one), ends.get(one, 0)) for one in mine)

    def close(self) -> None:
        """See `GroupReader`."""
        if self._closed.is_set():
            return
        with ExitStack() as last:
            for one in self._members.values():
                last.callback(one.close)
            last.callback(self._letters.close)
            last.callback(self._closed.set)
            last.callback(self._call, self._author.close)

    def _has_none(self) -> bool:
        if not self._call(self._author.has_joined):
            self._without_since = None
            return False
        now = self._source.clock.now()
        if self._without_since is None:
            self._without_since = now
        return now - self._without_since >= _SETTLED

    def _fetch(self, limits: FetchLimits) -> None:
        began = perf_counter()
        counters = self._counters
        try:
            self._waiting = self._call(lambda: self._author.fetch_messages(limits))
            self._assigned()
            if self._waiting is not None:
                counters = self._member(self._waiting[0]).counters
        finally:
            counters.fetches += 1
            counters.fetch_seconds += perf_counter() - began

    def _look_at_partitions(self) -> None:
        """Look at the partitions while nothing arrives: a transaction may be open."""
        now = self._source.clock.now()
        if now >= self._next_look:
            every = self._source.config["metadata.refresh.millis"] / 1000
            self._next_look = now + every
            with suppress(StreamError):  # the member has its own
                self._source.metadata.partitions()

    def _refuse_recreated(self, among: set[Partition] | None = None) -> None:
        """Raise the error of a partition that was recreated since it was read."""
        for partition, error in self._incarnations.changed.items():
            if among is None or partition in among:
                raise error

    def _lost(self, error: DataLossError, limits: FetchLimits) -> MessageBatch:
        """Continue at another offset with a loss record, or raise (rule R7)."""
        partition, offset = error.partition, error.offset
        if partition is None or offset is None:
            raise error
        self._assigned()
        if self._waiting is not None and self._waiting[0] == partition:
            self._waiting = None
        return self._handed(self._member(partition).lost(offset, error, limits))

    def _handed(self, batch: MessageBatch) -> MessageBatch:
        if self._throttle is not None:
            self._throttle.took(batch.num_rows, batch.size)
        refuse_torn(batch, self._source.config.name)
        self._incarnations.note(batch)
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
                self._incarnations.expected.get(partition),
            )
        return found

    def _assigned(self) -> dict[Partition, _Assigned]:
        """Return the assigned partitions; revoked ones are dropped.

        A partition may be assigned again later, at a greater offset.
        """
        if not self._closed.is_set():
            mine = self._call(self._author.assignment)
            waiting = set() if self._waiting is None else {self._waiting[0]}
            self._drop((set(self._members) | waiting) - set(mine))
            self._starts = self._call(self._author.starts)
            self._incarnations.assign(self._starts)
        return self._members

    def _drop(self, partitions: set[Partition]) -> None:
        """Forget what was read of partitions that were revoked."""
        for partition in partitions:
            one = self._members.pop(partition, None)
            if one is not None:
                self._counters += one.counters
                one.close()
            if self._waiting is not None and self._waiting[0] == partition:
                self._waiting = None

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
        partition: The partition.
        policy: The loss policy.
        seek: Makes the backend continue at another offset.
        closed: Set when the group reader is closed.
        incarnation: That of the offsets, if known.
    """

    def __init__(
        self,
        source: Source,
        partition: Partition,
        policy: LossPolicy,
        seek: Callable[[int], None],
        closed: threading.Event,
        incarnation: str | None,
    ) -> None:
        self._partition = partition
        self._seek = seek
        self.counters = Counters()
        name, clock = source.config.name, source.clock
        self._tally = ReadTally(name, partition, self.counters, clock)
        self._end_metrics = registry.track(self, self._tally)
        self.next: int | None = None
        """Offset of the next message; None before the first result."""
        self.bounds = Bounds(
            partition,
            policy,
            look_up=lambda: source.metadata.info(partition, closed),
            identify=lambda: source.metadata.incarnations([partition], closed)[
                partition
            ],
            incarnation=incarnation,
        )
        shaper = source.shaper(partition)
        self.maker = BatchMaker(partition, shaper, self.bounds, self.counters)

    def batch(self, fetched: Fetched, limits: FetchLimits) -> MessageBatch:
        """Return the batch of a result."""
        where = self.next
        if where is not None:
            elsewhere = self.bounds.redirect(where, fetched)
            if elsewhere is not None:
                self._seek(elsewhere)
                left = Fetched(None, elsewhere, losses=fetched.losses)
                return self._made(where, elsewhere, limits, Answer.of(elsewhere, left))
        count = 0 if fetched.rows is None else fetched.rows.num_rows
        # Rows without offsets end at the next offset; their start is not known
        # otherwise.
        answer = self.maker.accept(fetched.next_offset - count, fetched, drop=False)
        first = answer.offset(0) if answer.num_rows else fetched.next_offset
        if where is not None:
            self.bounds.check_gap(where, first, fetched)
        self.bounds.incarnation = self.bounds.incarnation or fetched.incarnation
        # The source chooses the offset: after a rebalance it may be before the last
        # one.
        start = first if where is None else min(where, first)
        return self._made(start, start, limits, answer)

    def rest(self, limits: FetchLimits) -> MessageBatch:
        """Return the rows beyond the limits of the last batch."""
        answer, self.maker.rest = self.maker.rest, None
        assert answer is not None
        assert self.next is not None
        return self._made(self.next, self.next, limits, answer)

    def lost(
        self, where: int, error: DataLossError, limits: FetchLimits
    ) -> MessageBatch:
        """Continue at another offset with a loss record, or raise (rule R7)."""
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
            # A failed call has no effect: the next one repeats it.
            self.maker.rest = answer
            raise
        self.next = batch.next_offset
        self._tally.observe(batch)
        return batch

    def close(self) -> None:
        """Close the decoder; its counts remain."""
        self._end_metrics()
        self.maker.close()
