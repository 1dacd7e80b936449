"""Many partitions read fairly, one batch at a time."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from streamfactory.spi import (
    BatchState,
    ClosedError,
    Finished,
    IncarnationChanged,
    Loss,
    Partition,
    PartitionState,
    PartitionVanished,
    Position,
)
from streamfactory.wiring.counters import Counters

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from streamfactory.spi import End, MessageBatch, PartitionInfo
    from streamfactory.wiring.clock import Clock
    from streamfactory.wiring.reader import Reader
    from streamfactory.wiring.source import Source

_OPEN: Final = 64
"""Readers open at a time where the end is known: ten thousand partitions need no ten
thousand connections."""
_LONGEST_PAUSE: Final = 0.05


@dataclass(slots=True)
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
        self._following = ends is None
        self._mine = mine
        self._refresh = refresh
        self._clock = clock
        self._looked = clock.now()
        self._closed = threading.Event()
        self._counters = Counters()
        self._next = dict(starts)
        self._incarnations = dict(incarnations)
        self._verified = False
        self.ends: dict[Partition, End] = {}
        """How partitions ended, for those that did."""
        lanes = [
            self._lane(
                info,
                starts[info.partition],
                None if ends is None else ends[info.partition],
            )
            for info in infos
            if info.partition in starts
        ]
        self._lanes: deque[_Lane] = deque(lane for lane in lanes if not _done(lane))

    @property
    def finished(self) -> bool:
        """True when nothing will come any more."""
        return self._verified and not self._lanes

    @property
    def position(self) -> Position:
        """Next offset of each partition, after the last batch handed out."""
        return Position(self._next, self._incarnations)

    @property
    def counters(self) -> Counters:
        """What all readers have done so far."""
        open_now = (lane.reader.counters for lane in self._lanes if lane.reader)
        return sum(open_now, self._counters)

    def next_batch(self, timeout: float) -> MessageBatch | None:
        """The next batch with rows, losses or an end; None when none came in time.

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
            batch = self._turn(deadline)
            if batch is not None:
                return batch
            if not self._lanes and not self._following:
                self._verify()
                return None
            left = deadline - self._clock.now()
            if left <= 0:
                return None
            if self._clock.wait(self._closed, min(pause, left)):
                continue
            pause = min(pause * 2, _LONGEST_PAUSE)

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
            # A lone partition may wait in its fetch: there is nobody to keep waiting.
            patience = min(deadline - self._clock.now(), 0.5) if window == 1 else 0.0
            batch = self._fetch(lane, max(0.0, patience))
            if batch.num_rows or batch.losses or batch.end is not None:
                return batch
        return None

    def _fetch(self, lane: _Lane, timeout: float) -> MessageBatch:
        if lane.reader is None:
            lane.reader = self._source.reader(
                lane.partition, info=lane.info, incarnation=lane.incarnation
            )
            lane.info = None
        batch = lane.reader.fetch(lane.next, end=lane.end, timeout=timeout)
        lane.next = batch.next_offset
        self._next[lane.partition] = batch.next_offset
        if lane.reader.incarnation is not None:
            self._incarnations[lane.partition] = lane.reader.incarnation
        ended = batch.state is BatchState.END_OF_PARTITION
        if ended:
            self.ends[lane.partition] = batch.end or Finished()
        if ended or _done(lane):
            self._retire(lane)
        elif self._lanes[0] is lane:
            self._rotate()
        return batch

    def _rotate(self) -> None:
        """Put the first lane behind the others that are open."""
        lane = self._lanes.popleft()
        window = (
            len(self._lanes) if self._following else min(len(self._lanes), _OPEN - 1)
        )
        self._lanes.insert(window, lane)

    def _retire(self, lane: _Lane) -> None:
        self._lanes.remove(lane)
        if lane.reader is not None:
            lane.reader.close()
            self._counters += lane.reader.counters

    def _lane(self, info: PartitionInfo, start: int, end: int | None) -> _Lane:
        partition = info.partition
        incarnation = self._incarnations.get(partition)
        return _Lane(partition, start, end, info, incarnation)

    def _look_for_partitions(self) -> None:
        if not self._following or self._clock.now() - self._looked < self._refresh:
            return
        self._looked = self._clock.now()
        for info in self._source.metadata.partitions():
            partition = info.partition
            if info.state is PartitionState.VANISHED:
                self._vanished(info)
            elif partition not in self._next and self._mine(partition):
                # Found later, so all that it holds is new (rule M4).
                self._next[partition] = info.earliest
                self._lanes.append(self._lane(info, info.earliest, None))

    def _vanished(self, info: PartitionInfo) -> None:
        lanes = [lane for lane in self._lanes if lane.partition == info.partition]
        if not lanes:
            return
        if self._source.config["out.of.range"] == "fail":
            msg = "the partition is gone while it was being read"
            raise PartitionVanished(
                msg,
                stream=self._source.config.name,
                partition=info.partition,
                offset=lanes[0].next,
            )
        loss = Loss(info.partition, lanes[0].next, None, "vanished")
        self._counters.losses.append(loss)
        self._retire(lanes[0])

    def _verify(self) -> None:
        """After the last fetch: did the offsets count the same all along (rule R7)?"""
        if self._verified:
            return
        infos = self._source.metadata.partitions() if self._incarnations else ()
        self._verified = True
        for info in infos:
            known = self._incarnations.get(info.partition)
            if None not in (known, info.incarnation) and known != info.incarnation:
                msg = "the stream was begun again while it was being read"
                raise IncarnationChanged(
                    msg,
                    expected=known,
                    found=info.incarnation,
                    stream=self._source.config.name,
                    partition=info.partition,
                )

    def _check_open(self) -> None:
        if self._closed.is_set():
            msg = "the stream is closed"
            raise ClosedError(msg, stream=self._source.config.name)


def _done(lane: _Lane) -> bool:
    return lane.end is not None and lane.next >= lane.end
