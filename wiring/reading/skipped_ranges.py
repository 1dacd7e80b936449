"""Reads what a reader skipped to be on time, range by range."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Final, final

from streamfactory.conversion.conform import empty_rows
from streamfactory.spi import (
    BatchState,
    Loss,
    MessageBatch,
    OffsetOutOfRange,
    PartitionState,
    PartitionVanished,
    Position,
    StreamTimeout,
    TopicNotFound,
)
from streamfactory.wiring.reading.batches import refuse_torn
from streamfactory.wiring.reading.counters import Counters
from streamfactory.wiring.reading.losses import LossPolicy, recreated, was_recreated
from streamfactory.wiring.reading.skipping import remaining

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamfactory.spi import Skipped
    from streamfactory.wiring.reading.reader import Reader
    from streamfactory.wiring.reading.source import Source

_PATIENCE: Final = 120.0
"""Seconds without progress after which a range is not waited for."""


@final
class SkippedRanges:
    """Reads skipped ranges in order, one at a time, and ends when none is left.

    What is not there any more is a loss, by ``out.of.range``. One thread.

    Args:
        source: The stream; remains the caller's.
        start: The position of the backfill; None before the first one.
        find: Returns the ranges that were skipped. Called before the first range, and
            when none is left: more may have been skipped meanwhile.
    """

    def __init__(
        self,
        source: Source,
        start: Position | None,
        find: Callable[[], tuple[Skipped, ...]],
    ) -> None:
        self._source = source
        self._policy = LossPolicy.of(source.config)
        self._clock = source.clock
        self._find = find
        self._done = start or Position()
        self._left: deque[Skipped] = deque()
        self._reader: Reader | None = None
        self._counters = Counters()
        self._progress = source.clock.now()
        self.finished = False
        """Whether no range is left."""

    @property
    def position(self) -> Position:
        """The next offset that a backfill reads, of each partition that has ranges."""
        return self._done

    @property
    def counters(self) -> Counters:
        """The sum of the counters of all readers."""
        if self._reader is None:
            return self._counters
        return self._counters + self._reader.counters

    def next_batch(self, timeout: float) -> MessageBatch | None:
        """Return the next batch with rows, dead letters or losses; None if none came.

        Args:
            timeout: Seconds.

        Raises:
            PartitionVanished, OffsetOutOfRange, IncarnationChanged: data_loss; under
                ``out.of.range=fail``.
            PositionRefused: permanent; the ranges are of another stream.
            StreamTimeout: transient; no message of a range arrived.
            StreamError: See `Reader.fetch`.
        """
        deadline = self._clock.now() + timeout
        while not self._is_over():
            patience = max(0.0, deadline - self._clock.now())
            batch = self._fetch(self._left[0], patience)
            if batch.num_rows or batch.losses or batch.dead_letters is not None:
                return batch
            if self._clock.now() >= deadline:
                return None
        return None

    def verify(self) -> None:
        """Each batch was confirmed when it was fetched (rule R13)."""

    def begin_range(self) -> None:
        """Reset the error budget (rule D3)."""
        if self._reader is not None:
            self._reader.begin_range()

    def close(self) -> None:
        """Close the reader; may be called twice."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()
            self._counters += reader.counters

    def _is_over(self) -> bool:
        if not self._left and not self.finished:
            ranges = self._find()
            places = {one.partition for one in ranges}
            self._source.metadata.check_position(places, "what was skipped")
            self._left.extend(remaining(ranges, self._done))
            self.finished = not self._left
        return self.finished

    def _fetch(self, one: Skipped, timeout: float) -> MessageBatch:
        """Fetch the next rows of a range, and move the position behind them."""
        try:
            if self._reader is None:
                lost = self._open(one)
                if lost is not None:
                    return self._end(one, lost)
            assert self._reader is not None
            batch = self._reader.fetch(one.start, end=one.end, timeout=timeout)
        except (PartitionVanished, TopicNotFound):
            if self._policy.fails:
                raise
            self.close()
            return self._end(one, self._vanished(one))
        refuse_torn(batch, self._source.config.name)
        if _is_elsewhere(batch, one):
            # The reader has counted the loss, and continues where the copy reads.
            return self._end(one, replace(batch.losses[-1], end=one.end))
        if batch.state is BatchState.END_OF_PARTITION and batch.next_offset < one.end:
            return self._end(one, self._ended(one, batch.next_offset))
        self._check_progress(one, batch)
        self._move(one, batch.next_offset)
        return batch

    def _open(self, one: Skipped) -> Loss | None:
        """Create the reader of a range; the loss if its messages are not there."""
        partition = one.partition
        infos = self._source.metadata.partitions(known=[partition])
        [info] = [info for info in infos if info.partition == partition]
        if info.state is PartitionState.VANISHED:
            return self._vanished(one)
        if was_recreated(one.incarnation, info.incarnation):
            error = recreated(partition, one.incarnation, info.incarnation, one.start)
            loss = Loss(partition, one.start, one.end, "incarnation")
            return self._policy.accept(loss, error)
        self._reader = self._source.reader(
            partition, info=info, incarnation=one.incarnation
        )
        self._progress = self._clock.now()
        return None

    def _vanished(self, one: Skipped) -> Loss:
        when = "before its skipped range was read"
        loss = self._policy.vanished(one.partition, one.start, when)
        return replace(loss, end=one.end)

    def _ended(self, one: Skipped, at: int) -> Loss:
        msg = f"the partition ends at {at}, within a skipped range"
        error = OffsetOutOfRange(msg, partition=one.partition, offset=at)
        loss = Loss(one.partition, at, one.end, "truncated")
        self._counters.losses.append(self._policy.accept(loss, error))
        return loss

    def _end(self, one: Skipped, loss: Loss) -> MessageBatch:
        """End a range whose other messages are lost."""
        if self._reader is None:
            self._counters.losses.append(loss)
        self._move(one, one.end)
        return MessageBatch(
            one.partition,
            empty_rows(self._source.schema),
            one.start,
            one.end,
            BatchState.CAUGHT_UP,
            losses=(loss,),
        )

    def _check_progress(self, one: Skipped, batch: MessageBatch) -> None:
        now = self._clock.now()
        if batch.next_offset > one.start or batch.state is BatchState.THROTTLED:
            self._progress = now
        elif now - self._progress > _PATIENCE:
            msg = f"no message of a skipped range arrived for {_PATIENCE:g} s"
            raise StreamTimeout(
                msg,
                stream=self._source.config.name,
                partition=one.partition,
                offset=one.start,
            )

    def _move(self, one: Skipped, offset: int) -> None:
        """Move the position behind what was read of the first range."""
        done = self._done.only(set(self._done) - {one.partition})
        place = {one.partition: offset}
        known = {} if one.incarnation is None else {one.partition: one.incarnation}
        self._done = done.merge(Position(place, known))
        if offset < one.end:
            self._left[0] = replace(one, start=offset)
        else:
            self._left.popleft()
            self.close()


def _is_elsewhere(batch: MessageBatch, one: Skipped) -> bool:
    """Whether the reader continued outside of the range after a loss.

    Those rows are not skipped: the copy reads them.
    """
    if was_recreated(one.incarnation, batch.incarnation):
        return True
    resumed = batch.next_offset if batch.first_offset is None else batch.first_offset
    return resumed < one.start
