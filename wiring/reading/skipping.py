"""Being on time: ranges that a reader skips, and what a backfill has still to read.

A position has the ranges that were skipped before it (`Position.skipped`), so that
whatever commits the position commits them with it. A backfill reads them in order and
commits a position of its own, which shows what it has read.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final, final

from streamfactory.spi import PartitionState, Position, Skipped
from streamfactory.wiring.core.guard import log
from streamfactory.wiring.reading.losses import was_recreated
from streamfactory.wiring.reading.starts import before_latest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from streamfactory.spi import Partition, PartitionInfo
    from streamfactory.wiring.reading.source import Source

_SOONEST: Final = 0.2
_LATEST: Final = 10.0
"""Bounds of the seconds from one look to the next."""
_LOOKS: Final = 20
"""Looks in the time that rows may be late."""


def by_partition(skipped: Iterable[Skipped]) -> dict[Partition, list[Skipped]]:
    """Return the ranges of each partition, in order."""
    found: dict[Partition, list[Skipped]] = {}
    for one in skipped:
        found.setdefault(one.partition, []).append(one)
    return found


def remaining(skipped: Iterable[Skipped], done: Position) -> tuple[Skipped, ...]:
    """Return what a backfill has still to read of skipped ranges.

    Args:
        skipped: The ranges, of each partition in the order in which they were skipped.
        done: The next offset that the backfill will read of each partition.
    """
    return tuple(
        left
        for partition, ranges in by_partition(skipped).items()
        for left in _remaining(partition, ranges, done)
    )


def _remaining(
    partition: Partition, ranges: Sequence[Skipped], done: Position
) -> Iterator[Skipped]:
    at = done.get(partition)
    if at is None:
        yield from ranges
        return
    incarnation = done.incarnations.get(partition)
    # A backfill reads in order: it is done with the ranges of earlier incarnations.
    known = [i for i, one in enumerate(ranges) if one.incarnation == incarnation]
    for one in ranges[known[0] if known else 0 :]:
        if one.incarnation != incarnation or one.start >= at:
            yield one
        elif one.end > at:
            yield replace(one, start=at)


def joined(skipped: Iterable[Skipped], more: Skipped) -> list[Skipped]:
    """Return ranges with one more of a partition, which extends its last one if it can.

    A source that stays late is skipped again before a row of it was read.
    """
    ranges = list(skipped)
    for index, one in reversed(list(enumerate(ranges))):
        if one.partition == more.partition:
            if (one.end, one.incarnation) == (more.start, more.incarnation):
                ranges[index] = replace(one, end=more.end)
                return ranges
            break
    return [*ranges, more]


def before(
    skipped: Iterable[Skipped], partition: Partition, incarnation: str | None, end: int
) -> list[Skipped]:
    """Return ranges, those of one partition and incarnation as far as an offset."""
    place = partition, incarnation
    kept = []
    for one in skipped:
        if (one.partition, one.incarnation) != place or one.end <= end:
            kept.append(one)
        elif one.start < end:
            kept.append(replace(one, end=end))
    return kept


def held(position: Position) -> Position:
    """Return the position before which nothing is left to read, for its source.

    A source may remove what was acknowledged: not what a backfill has to read.
    """
    offsets = dict(position.items())
    for one in position.skipped:
        known = position.incarnations.get(one.partition)
        if one.partition in offsets and not was_recreated(one.incarnation, known):
            offsets[one.partition] = min(offsets[one.partition], one.start)
    return Position(offsets, position.incarnations)


@final
class Freshness:
    """Decides which partitions are too late, and where they continue. One thread.

    Args:
        source: The stream, with the options ``fresh.*``.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        config = source.config
        within = config.get("fresh.within.millis")
        self._within: float | None = None if not within else within / 1000
        self._rows: int | None = config.get("fresh.within.rows")
        self._most: int = config["fresh.max.ranges"]
        period = _LATEST if self._within is None else self._within / _LOOKS
        self.period = max(_SOONEST, min(period, 1.0 if self._rows else _LATEST))
        """Seconds from one look to the next."""
        self.stopped = False
        """Whether a partition is late, and is not skipped because of the limit."""

    @property
    def asked(self) -> bool:
        """Whether any rows are to be skipped."""
        return self._within is not None or self._rows is not None

    def late(self, position: Position) -> dict[Partition, int]:
        """Return where the partitions would continue that are too late.

        Where half of what is allowed is left, so that they are not late again at once.

        Args:
            position: The next offset of each partition.

        Raises:
            Unsupported: misuse; ``fresh.within.millis`` is set, and the stream type
                cannot find offsets by time.
            StreamError: The source cannot be reached.
        """
        infos = {
            info.partition: info
            for info in self._source.metadata.partitions()
            if _may_skip(info, position)
        }
        targets: dict[Partition, int] = {}
        for found in (self._by_rows(infos, position), self._by_time(infos, position)):
            for partition, target in found.items():
                if target > position[partition]:
                    targets[partition] = max(target, targets.get(partition, 0))
        return targets

    def _by_rows(
        self, infos: Mapping[Partition, PartitionInfo], position: Position
    ) -> dict[Partition, int]:
        rows, metadata = self._rows, self._source.metadata
        if rows is None:
            return {}
        return {
            partition: before_latest(metadata, info, rows // 2)
            for partition, info in infos.items()
            if (metadata.behind(info, position[partition]) or 0) > rows
        }

    def _by_time(
        self, infos: Mapping[Partition, PartitionInfo], position: Position
    ) -> dict[Partition, int]:
        within, metadata = self._within, self._source.metadata
        if within is None or not infos:
            return {}
        now = time.time()
        allowed = metadata.offsets_at(_millis(now - within), list(infos))
        late = [
            partition
            for partition, offset in allowed.items()
            if offset is None or offset > position[partition]
        ]
        if not late:
            return {}
        targets = metadata.offsets_at(_millis(now - within / 2), late)
        return {
            partition: infos[partition].latest or 0 if offset is None else offset
            for partition, offset in targets.items()
        }

    def admit(
        self, targets: Mapping[Partition, int], position: Position, done: Position
    ) -> dict[Partition, int]:
        """Return those of `late` that may be skipped.

        Args:
            targets: Where partitions continue.
            position: The next offset of each partition, with the ranges that are open.
            done: The position of the backfill. Nothing before it is skipped: it would
                not be read again.
        """
        ranges, stopped = list(position.skipped), False
        admitted: dict[Partition, int] = {}
        for partition, target in sorted(targets.items()):
            incarnation = position.incarnations.get(partition)
            if done.incarnations.get(partition) == incarnation and (
                done.get(partition, 0) > position[partition]
            ):
                continue  # the topic was truncated, and grows again
            more = Skipped(partition, position[partition], target, incarnation)
            longer = joined(ranges, more)
            if len(longer) <= self._most:
                ranges, admitted[partition] = longer, target
            else:
                stopped = True
        if stopped and not self.stopped:
            text = "stream %r: %d ranges were skipped and not read since: no more are, "
            text += "until a backfill has read some (fresh.max.ranges)"
            log.warning(text, self._source.config.name, len(position.skipped))
        self.stopped = stopped
        return admitted


def _may_skip(info: PartitionInfo, position: Position) -> bool:
    at, latest = position.get(info.partition), info.latest
    if at is None or latest is None or info.state is PartitionState.VANISHED:
        return False
    # What is lost is found, and reported, by the reader.
    known = position.incarnations.get(info.partition)
    return not was_recreated(known, info.incarnation) and info.earliest <= at < latest


def _millis(seconds: float) -> int:
    return max(0, int(seconds * 1000))
