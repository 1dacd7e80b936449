"""Many partitions read fairly, one batch at a time."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from streamfactory.spi import (
    Abandoned,
    BatchState,
    ClosedError,
    Finished,
    MessageBatch,
    Partition,
    PartitionState,
    PartitionVanished,
    Position,
    TopicNotFound,
)
from streamfactory.wiring.core.conform import empty_rows
from streamfactory.wiring.reading.counters import Counters
from streamfactory.wiring.reading.losses import LossPolicy, recreated, was_recreated

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from streamfactory.spi import End, PartitionInfo, StreamError
    from streamfactory.wiring.core.clock import Clock
    from streamfactory.wiring.reading.reader import Reader
    from streamfactory.wiring.reading.source import Source

_OPEN: Final = 64
"""Readers open at a time where the end is known: ten thousand partitions need no ten
thousand connections."""
_LONGEST_PAUSE: Final = 0.05


@dataclass(slots=True, eq=False)
class _Lane:
    partition: Partition
    next: int
    end: int | None
    info: PartitionInfo | None
    incarnation: str | None
    reader: Reader | None = None


@final
class Rotation:
    """Takes turns among partitions. One thread asks; any may close.

    Args:
        source: Makes the readers.
        infos: The partitions as they were just seen.
        starts: First offset of each partition to read, inclusive. Partitions without
            one are not read.
        ends: First offset not to read, by partition; None in it: until the partition
            ends. None altogether: follow for ever, new partitions too.
        incarnations: What the starts count, where the caller knows.
        mine: Which partitions found later are read here.
        refresh: Seconds between looks for new partitions.
        clock: Time.
    """

    def __init__(
        self,
        source: Source,
        infos: Sequence[PartitionInfo],
        starts: Mapping[Partition, int],
        *,
        ends: Mapping[Partition, int | None] | None,
        incarnations: Mapping[Partition, str],
        mine: Callable[[Partition], bool],
        refresh: float,
        clock: Clock,
    ) -> None:
        self._source = source
        self._policy = LossPolicy.of(source.config)
        self._following = ends is None
        self._mine = mine
        self._refresh = refresh
        self._clock = clock
        self._looked = clock.now()
        self._closed = threading.Event()
        self._counters = Counters()
        self._next: dict[Partition, int] = {}
        self._incarnations: dict[Partition, str] = {}
        self._verified = False
        self.ends: dict[Partition, End] = {}
        """How partitions ended, for those that did."""
        self._lanes: deque[_Lane] = deque()
        self._told: deque[MessageBatch] = deque()
        for info in infos:
            partition = info.partition
            if partition in starts:
                end = None if ends is None else ends[partition]
                self._add(info, starts[partition], end, incarnations.get(partition))

    @property
    def finished(self) -> bool:
        """True when nothing will come any more."""
        return self._verified and not self._lanes and not self._told

    @property
    def position(self) -> Position:
        """Next offset of each partition, after the last batch handed out."""
        return Position(self._next, self._incarnations)

    @property
    def counters(self) -> Counters:
        """What all readers have done so far."""
        readers = [lane.reader for lane in list(self._lanes)]
        return sum((r.counters for r in readers if r is not None), self._counters)

    def next_batch(self, timeout: float) -> MessageBatch | None:
        """The next batch with content; None when none came in time.

        That is rows, dead letters, losses or an end.

        Args:
            timeout: Seconds.

        Raises:
            PartitionVanished, OffsetOutOfRange, IncarnationChanged: data_loss.
            StreamError: As `Reader.fetch`.
        """
        deadline = self._clock.now() + timeout
        pause = 0.001
        while True:
            self._check_open()
            self._look_for_partitions()
            if self._told:
                return self._told.popleft()
            batch = self._turn(deadline)
            if batch is not None:
                return batch
            if self._told:
                continue
            if not self._lanes and not self._following:
                self._verify()
                return None
            left = deadline - self._clock.now()
            if left <= 0:
                return None
            if self._clock.wait(self._closed, min(pause, left)):
                continue
            pause = min(pause * 2, _LONGEST_PAUSE)

    def begin_range(self) -> None:
        """Begin a range: each partition has an error budget of its own (rule D3)."""
        for lane in self._lanes:
            if lane.reader is not None:
                lane.reader.begin_range()

    def close(self) -> None:
        """Close all readers; twice is fine."""
        self._closed.set()
        for lane in list(self._lanes):
            if lane.reader is not None:
                lane.reader.close()

    def _turn(self, deadline: float) -> MessageBatch | None:
        """Ask each partition once, until one has something."""
        window = len(self._lanes) if self._following else min(len(self._lanes), _OPEN)
        for _ in range(window):
            lane = self._lanes[0]
            self._rotate()
            # A lone partition may wait in its fetch: there is nobody to keep waiting.
            patience = min(deadline - self._clock.now(), 0.5) if window == 1 else 0.0
            batch = self._fetch(lane, max(0.0, patience))
            if batch is not None and (
                batch.num_rows
                or batch.losses
                or batch.dead_letters is not None
                or batch.end is not None
            ):
                return batch
        return None

    def _fetch(self, lane: _Lane, timeout: float) -> MessageBatch | None:
        if lane.reader is None:
            lane.reader = self._source.reader(
                lane.partition, info=lane.info, incarnation=lane.incarnation
            )
            lane.info = None
            if self._closed.is_set():
                lane.reader.close()  # made while `close` went by
        try:
            batch = lane.reader.fetch(lane.next, end=lane.end, timeout=timeout)
        except (PartitionVanished, TopicNotFound) as error:
            self._gone(lane, error)
            return None
        lane.next = batch.next_offset
        self._next[lane.partition] = batch.next_offset
        if lane.reader.incarnation is not None:
            self._incarnations[lane.partition] = lane.reader.incarnation
        ended = batch.state is BatchState.END_OF_PARTITION
        if ended:
            self.ends[lane.partition] = batch.end or Finished()
        if ended or (lane.end is not None and lane.next >= lane.end):
            self._retire(lane)
        return batch

    def _rotate(self) -> None:
        """Put the first lane behind the others that are open."""
        lane = self._lanes.popleft()
        others = len(self._lanes)
        self._lanes.insert(others if self._following else min(others, _OPEN - 1), lane)

    def _retire(self, lane: _Lane) -> None:
        self._lanes.remove(lane)
        if lane.reader is not None:
            lane.reader.close()
            self._counters += lane.reader.counters

    def _add(
        self, info: PartitionInfo, start: int, end: int | None, incarnation: str | None
    ) -> None:
        partition = info.partition
        lane = _Lane(partition, start, end, info, incarnation or info.incarnation)
        self._next[partition] = start
        if lane.incarnation is not None:
            self._incarnations[partition] = lane.incarnation
        same = info.incarnation in (None, lane.incarnation)
        if info.state is not PartitionState.VANISHED and start == end and same:
            return
        self._lanes.append(lane)
        if info.state is PartitionState.VANISHED:
            self._gone(lane, None)

    def _look_for_partitions(self) -> None:
        if not self._following or self._clock.now() - self._looked < self._refresh:
            return
        self._looked = self._clock.now()
        for info in self._source.metadata.partitions():
            partition = info.partition
            if info.state is PartitionState.VANISHED:
                lanes = [lane for lane in self._lanes if lane.partition == partition]
                if lanes:
                    self._gone(lanes[0], None)
            elif partition not in self._next and self._mine(partition):
                # Found later, so all that it holds is new (rule M4).
                self._add(info, info.earliest, None, None)

    def _gone(self, lane: _Lane, error: StreamError | None) -> None:
        """The partition is no longer there: an error, or a loss and the others go on.

        It is forgotten here: should it come back, all that it holds is new.
        """
        partition = lane.partition
        if self._policy.fails and error is not None:
            raise error
        loss = self._policy.vanished(partition, lane.next, "while it was read")
        self._retire(lane)
        self._counters.losses.append(loss)
        self._next.pop(partition, None)
        self._incarnations.pop(partition, None)
        self.ends[partition] = Abandoned()
        self._told.append(
            MessageBatch(
                partition,
                empty_rows(self._source.schema),
                lane.next,
                lane.next,
                BatchState.END_OF_PARTITION,
                losses=(loss,),
                end=Abandoned(),
            )
        )

    def _verify(self) -> None:
        """After the last fetch: did the offsets count the same all along (rule R7)?"""
        if self._verified:
            return
        infos = self._source.metadata.partitions() if self._incarnations else ()
        for info in infos:
            partition, found = info.partition, info.incarnation
            known = self._incarnations.get(partition)
            if was_recreated(known, found):
                error = recreated(partition, known, found, self._next[partition])
                raise error.at(stream=self._source.config.name)
        self._verified = True

    def _check_open(self) -> None:
        if self._closed.is_set():
            msg = "the stream is closed"
            raise ClosedError(msg, stream=self._source.config.name)
