"""Differences of positions, and the next batch of a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from streamfactory.spark.checkpoints.starting import check_streams
from streamfactory.wiring.microbatch import BatchOffset, Planner, Range
from streamfactory.wiring.reading.lag import measure_lag
from streamfactory.wiring.reading.losses import was_recreated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfactory.spark.checkpoints.reading import QueryCheckpoint
    from streamfactory.spi import Partition, Position
    from streamfactory.wiring.reading.source import Source


@final
@dataclass(frozen=True, slots=True)
class Moved:
    """Difference of two positions in one partition."""

    partition: Partition
    before: int | None
    after: int | None
    offsets: int | None
    """Negative if it moved back; None if the incarnations differ."""
    remark: str | None
    """``new``, ``gone`` or ``recreated``."""


def differences(before: Position, after: Position) -> list[Moved]:
    """Compare two positions."""
    found = []
    for partition in sorted({*before, *after}):
        old, new = before.get(partition), after.get(partition)
        if old is None or new is None:
            remark = "new" if old is None else "gone"
            found.append(Moved(partition, old, new, None, remark))
            continue
        incarnations = (p.incarnations.get(partition) for p in (before, after))
        if was_recreated(*incarnations):
            found.append(Moved(partition, old, new, None, "recreated"))
        else:
            found.append(Moved(partition, old, new, new - old, None))
    return found


@final
@dataclass(frozen=True, slots=True)
class NextBatch:
    """The batch that Spark would read next."""

    number: int
    replay: bool
    """Whether it was planned before and is repeated as planned."""
    ranges: tuple[tuple[Range, ...], ...]
    """Ranges of each source, one per task."""
    waiting: tuple[int | None, ...]
    """Per source, available offsets that are not in the batch; None if unknown."""


def next_batch(query: QueryCheckpoint, sources: Sequence[Source]) -> NextBatch:
    """Plan the next batch as Spark would, with the limits of the streams.

    Args:
        query: The checkpoint.
        sources: Its streams, in the order of the query.

    Raises:
        PositionRefused: permanent; the checkpoint belongs to other streams.
        DataLossError: data_loss; the batch would fail for the same reason.
    """
    where = query.place.text
    planners = [Planner(source) for source in sources]
    if query.planned:
        check_streams(where, query.batch(query.planned[-1]), sources)
    if query.unfinished is not None:
        number = query.unfinished
        starts, ends = _offsets(query, number - 1), _offsets(query, number)
    else:
        number = 0 if query.last is None else query.last + 1
        starts = _offsets(query, number - 1)
        if query.last is None:
            starts = [planner.initial() for planner in planners]
        pairs = zip(planners, starts, strict=True)
        ends = [planner.latest(start) for planner, start in pairs]
    plans = zip(planners, starts or [BatchOffset(None)] * len(ends), ends, strict=True)
    ranges = tuple(tuple(planner.ranges(start, end)) for planner, start, end in plans)
    if query.unfinished is not None:  # otherwise `latest` has checked the start
        for planner, planned in zip(planners, ranges, strict=True):
            planner.check(planned)
    waiting = tuple(_waiting(e, s) for e, s in zip(ends, sources, strict=True))
    return NextBatch(number, query.unfinished is not None, ranges, waiting)


def _offsets(query: QueryCheckpoint, number: int) -> list[BatchOffset]:
    """The offsets of a batch; empty before the first."""
    if number < 0:
        return []
    return [source.offset for source in query.batch(number).sources]


def _waiting(end: BatchOffset, source: Source) -> int | None:
    if end.at is None:
        return None
    total = 0
    for lag in measure_lag(end.at, source):
        if lag.behind is None:
            return None
        total += lag.behind
    return total
