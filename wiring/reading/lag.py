"""How far a position is behind its stream, for the command line, checks and pages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from streamfactory.spi import PartitionState
from streamfactory.wiring.reading.losses import was_recreated

if TYPE_CHECKING:
    from streamfactory.spi import Partition, PartitionInfo, Position
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


def measure_lag(position: Position, source: Source) -> list[PartitionLag]:
    """Compare a position with the current partitions.

    Raises:
        PositionRefused: permanent; the position belongs to another stream.
        StreamError: The stream cannot be reached.
    """
    source.metadata.check_position(position)
    infos = source.metadata.partitions(known=position)
    return [_lag(source.metadata, info, position) for info in infos]


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
