"""What a checkpoint means for its streams: how far behind, how far on, what is next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from streamfactory.spark.checkpoints.starting import check_stream, check_streams
from streamfactory.spi import PartitionState
from streamfactory.wiring.microbatch import BatchOffset, Planner, Range

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfactory.spark.checkpoints.reading import QueryCheckpoint
    from streamfactory.spi import Partition, PartitionInfo, Position
    from streamfactory.wiring.reading.source import Source


@final
@dataclass(frozen=True, slots=True)
class PartitionLag:
    """How far a position is behind one partition."""

    partition: Partition
    offset: int
    """The next one to read."""
    latest: int | None
    behind: int | None
    """``latest`` less ``offset`` (rule M7); None where it cannot be known."""
    remark: str | None
    """What is special: new, vanished, begun again, expired."""


def measure_lag(position: Position, source: Source) -> list[PartitionLag]:
    """Hold a position against the partitions as they are now.

    Raises:
        PositionRefused: permanent; it is of another stream.
        StreamError: The stream's: it cannot be reached.
    """
    check_stream("the position", position, source)
    infos = source.metadata.partitions(known=position)
    return [_lag(info, position) for info in infos]


def _lag(info: PartitionInfo, position: Position) -> PartitionLag:
    partition, latest = info.partition, info.latest
    offset = position.get(partition)
    if offset is None:
        behind = None if latest is None else latest - info.earliest
        return PartitionLag(partition, info.earliest, latest, behind, "new")
    if info.state is PartitionState.VANISHED:
        return PartitionLag(partition, offset, None, None, "vanished")
    lives = {position.incarnations.get(partition), info.incarnation} - {None}
    if len(lives) > 1:
        return PartitionLag(partition, offset, latest, None, "begun again")
    remark = None
    if offset < info.earliest:
        remark = f"{info.earliest - offset} expired"
    elif latest is not None and offset > latest:
        return PartitionLag(partition, offset, latest, None, "cut off")
    behind = None if latest is None else latest - offset
    return PartitionLag(partition, offset, latest, behind, remark)


@final
@dataclass(frozen=True, slots=True)
class Moved:
    """How far one partition is from one position to another."""

    partition: Partition
    before: int | None
    after: int | None
    offsets: int | None
    """Below 0 where it went back; None where the two do not count the same."""
    remark: str | None
    """What is special: new, gone, begun again."""


def differences(before: Position, after: Position) -> list[Moved]:
    """Hold two positions against one another."""
    found = []
    for partition in sorted({*before, *after}):
        old, new = before.get(partition), after.get(partition)
        if old is None or new is None:
            remark = "new" if old is None else "gone"
            found.append(Moved(partition, old, new, None, remark))
            continue
        lives = {p.incarnations.get(partition) for p in (before, after)} - {None}
        if len(lives) > 1:
            found.append(Moved(partition, old, new, None, "begun again"))
        else:
            found.append(Moved(partition, old, new, new - old, None))
    return found


@final
@dataclass(frozen=True, slots=True)
class NextBatch:
    """What Spark reads next, as far as it can be told now."""

    number: int
    replay: bool
    """Whether it was planned before, and is read again as planned."""
    ranges: tuple[tuple[Range, ...], ...]
    """Of each source, one a task."""
    waiting: tuple[int | None, ...]
    """Of each source, offsets that are there and are not in it; None where that is
    not known."""


def next_batch(query: QueryCheckpoint, sources: Sequence[Source]) -> NextBatch:
    """Plan what Spark would plan, by the limits of the streams.

    Args:
        query: The checkpoint.
        sources: Its streams, in the order of the query.

    Raises:
        PositionRefused: permanent; the checkpoint is of other streams.
        DataLossError: data_loss; the batch would fail, for the same reason.
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
    waiting = tuple(_waiting(e, s) for e, s in zip(ends, sources, strict=True))
    return NextBatch(number, query.unfinished is not None, ranges, waiting)


def _offsets(query: QueryCheckpoint, number: int) -> list[BatchOffset]:
    """The offsets of a batch; none of what is before the first."""
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
