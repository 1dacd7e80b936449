"""How far a position is behind its stream, for the command line, checks and pages."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, final

from streamfactory.spi import PartitionState
from streamfactory.wiring.reading.losses import was_recreated
from streamfactory.wiring.reading.skipping import by_partition
from streamfactory.wiring.reading.waiting import waiting_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from streamfactory.spi import Partition, PartitionInfo, Position, Skipped
    from streamfactory.wiring.reading.metadata import Metadata
    from streamfactory.wiring.reading.source import Source


@final
@dataclass(frozen=True, slots=True)
class PartitionLag:
    """Lag of a position in one partition."""

    partition: Partition
    offset: int
    """The next offset to read."""
    latest: int | None
    behind: int | None
    """Messages from ``offset`` to ``latest`` (rule M7); None if unknown."""
    remark: str | None
    """``new``, ``vanished``, ``recreated``, ``beyond latest`` or ``N expired``."""
    commits: int | None = None
    """Commits from ``offset`` to ``latest``, of tables; None if unknown."""
    waiting: int = 0
    """Offsets after ``latest`` that wait for an open transaction."""
    waiting_since: str | None = None
    """When the first of them was written, in UTC; None if unknown."""
    skipped: int = 0
    """Offsets before ``offset`` that were skipped to be on time, and that a backfill
    has still to read."""
    skipped_ranges: int = 0
    """Ranges of these offsets."""

    @property
    def remarks(self) -> str:
        """The remark, what waits, and what was skipped; empty if there is nothing."""
        texts = (
            self.remark,
            waiting_text(self.waiting, self.waiting_since),
            skipped_text(self.skipped, self.skipped_ranges),
        )
        return ", ".join(text for text in texts if text)


def measure_lag(position: Position, source: Source) -> list[PartitionLag]:
    """Compare a position with the current partitions.

    Raises:
        PositionRefused: permanent; the position belongs to another stream.
        StreamError: The stream cannot be reached.
    """
    source.metadata.check_position(position)
    infos = source.metadata.partitions(known=position)
    skipped = by_partition(position.skipped)
    return [
        _with_skipped(
            _with_waiting(source.metadata, info, position),
            skipped.get(info.partition, ()),
        )
        for info in infos
    ]


def skipped_of(lags: Iterable[PartitionLag]) -> str:
    """What was skipped of all partitions; empty if nothing was."""
    found = [*lags]
    offsets = sum(lag.skipped for lag in found)
    return skipped_text(offsets, sum(lag.skipped_ranges for lag in found))


def skipped_text(offsets: int, ranges: int) -> str:
    """What was skipped to be on time; empty if nothing was."""
    if not ranges:
        return ""
    return f"{offsets} skipped in {ranges} range{'s' * (ranges != 1)}"


def _with_skipped(lag: PartitionLag, ranges: Sequence[Skipped]) -> PartitionLag:
    if not ranges:
        return lag
    total = sum(one.size for one in ranges)
    return replace(lag, skipped=total, skipped_ranges=len(ranges))


def waiting_of(lags: Iterable[PartitionLag]) -> str:
    """What waits in all partitions, since the earliest time; empty if nothing does."""
    found = [lag for lag in lags if lag.waiting]
    since = min((lag.waiting_since for lag in found if lag.waiting_since), default=None)
    return waiting_text(sum(lag.waiting for lag in found), since)


def _with_waiting(
    metadata: Metadata, info: PartitionInfo, position: Position
) -> PartitionLag:
    lag = _lag(metadata, info, position)
    if not info.waiting:
        return lag
    since = metadata.waiting_since(info)
    return replace(lag, waiting=info.waiting, waiting_since=since)


def _lag(metadata: Metadata, info: PartitionInfo, position: Position) -> PartitionLag:
    partition, latest = info.partition, info.latest
    offset = position.get(partition)
    if offset is None:
        behind = metadata.behind(info, info.start)
        commits = metadata.commits(info, info.start)
        return PartitionLag(partition, info.start, latest, behind, "new", commits)
    if info.state is PartitionState.VANISHED:
        return PartitionLag(partition, offset, None, None, "vanished")
    if was_recreated(position.incarnations.get(partition), info.incarnation):
        return PartitionLag(partition, offset, latest, None, "recreated")
    remark = None
    if offset < info.earliest:
        remark = f"{info.earliest - offset} expired"
    elif latest is not None and offset > latest:
        return PartitionLag(partition, offset, latest, None, "beyond latest")
    behind = metadata.behind(info, offset)
    commits = metadata.commits(info, offset)
    return PartitionLag(partition, offset, latest, behind, remark, commits)


def lag_text(
    behind: int | None, commits: int | None, noun: str = "", unknown: str = "unknown"
) -> str:
    """How far a position is behind: in messages, and in commits of a table.

    Args:
        behind: Messages; None if unknown.
        commits: Commits; None if the source has none, or they are unknown.
        noun: What ``behind`` counts, in the singular: ``offset``.
        unknown: The text for an unknown number.
    """
    number = unknown if behind is None else str(behind)
    counted = f" {noun}{'s' * (behind != 1)}" if noun else ""
    text = f"{number}{counted} behind"
    if commits is None:
        return text
    return f"{text}, in {commits} commit{'s' * (commits != 1)}"
