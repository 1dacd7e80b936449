"""Which offsets a micro-batch reads: offsets in, offsets and ranges out.

What one driver learnt no other knows, and no task does: everything that a replay needs
is in the offsets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from streamfactory.spi import (
    OffsetOutOfRange,
    PartitionState,
    Position,
    PositionRefused,
    Unsupported,
)
from streamfactory.wiring.microbatch.admission import Admission
from streamfactory.wiring.microbatch.offsets import BatchOffset
from streamfactory.wiring.microbatch.ranges import Range, split
from streamfactory.wiring.reading.losses import LossPolicy
from streamfactory.wiring.reading.starts import ending_offsets, starting_offsets

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streamfactory.spi import Partition, PartitionInfo
    from streamfactory.wiring.reading.source import Source


@final
class Planner:
    """Plans batches of one stream. One thread at a time.

    Args:
        source: What is read.
        admission: How much a batch takes; by default as the configuration says.
    """

    def __init__(self, source: Source, admission: Admission | None = None) -> None:
        self._source = source
        self._config = source.config
        self._metadata = source.metadata
        self._admission = admission or Admission(source.config, source.clock)
        self._policy = LossPolicy.of(source.config)
        self._available_now = False
        self._draining = False
        self._target: dict[Partition, int] | None = None
        self.newest: Position | None = None
        """The latest of all partitions, when it was last asked for."""

    @property
    def limited(self) -> bool:
        """Whether the configuration limits batches."""
        return self._admission.limits

    # --- a batch of its own -----------------------------------------------------

    def batch(self) -> list[Range]:
        """The ranges of a batch query, by the start and end options.

        Raises:
            OffsetOutOfRange: data_loss; a given offset is not held.
            ConfigError: config; offsets are given for other partitions.
        """
        infos = self._metadata.partitions()
        starts = starting_offsets(
            self._config, self._metadata, infos, start=None, default="earliest"
        )
        ends = ending_offsets(self._config, self._metadata, infos)
        ranges = []
        for info in infos:
            first, last = starts.get(info.partition), ends.get(info.partition)
            if first is None or last is None:
                continue
            first, _ = self._policy.start(info, first, None)
            last = self._policy.end(info, last)
            if first > last:
                msg = f"the batch ends at {last}, before its start {first}"
                raise OffsetOutOfRange(
                    msg,
                    earliest=info.earliest,
                    latest=info.latest,
                    partition=info.partition,
                    offset=first,
                )
            if first < last:
                ranges.append(Range(info.partition, first, last, info.incarnation))
        return self._split(ranges)

    # --- batches of a stream ----------------------------------------------------

    def initial(self) -> BatchOffset:
        """Where a new query begins, as things are now."""
        infos = self._metadata.partitions()
        starts = starting_offsets(
            self._config, self._metadata, infos, start=None, default="latest"
        )
        return BatchOffset(None, _position(starts, infos))

    def prepare_for_available_now(self) -> None:
        """From here on the end is fixed, once it is first asked for.

        Not before: the start of a new query may be resolved later than this.
        """
        self._available_now = True

    def drain(self) -> None:
        """From here on nothing more is taken."""
        self._draining = True

    def latest(self, start: BatchOffset, *, limited: bool = True) -> BatchOffset:
        """Where the next batch ends; ``start`` itself where there is nothing for one.

        Args:
            start: Where it begins.
            limited: Whether the limits of the configuration hold.

        Raises:
            OffsetOutOfRange, IncarnationChanged, PartitionVanished: data_loss; under
                ``out.of.range=fail``.
            PositionRefused: permanent; the offset is of another stream.
        """
        self._metadata.check_position(_known(start), "the offset")
        infos = self._metadata.partitions(known=_known(start))
        self.newest = _latest(infos)
        if self._available_now and self._target is None:
            self._target = {i.partition: i.latest or 0 for i in infos}
        starts, begun = self._starts(start, infos)
        there = {info.partition: info for info in infos}
        backlog = {
            partition: max(0, self._end(there[partition]) - first)
            for partition, first in starts.items()
        }
        if self._draining:
            backlog = dict.fromkeys(backlog, 0)
        elif limited:
            if self._waits(start, sum(backlog.values()), begun):
                return start
            backlog = self._admission.share(backlog)
        ends = {p: first + backlog[p] for p, first in starts.items()}
        end = BatchOffset(_position(ends, infos), _position(begun, infos))
        if end.at == start.at and not end.begun:
            return start
        self._admission.took()
        return end

    def ranges(self, start: BatchOffset, end: BatchOffset) -> list[Range]:
        """The ranges of a batch. Pure: asks nobody.

        Raises:
            PositionRefused: permanent; an offset is of another stream, or ends before
                it starts.
        """
        if start == end or end.at is None:
            return []
        for offset in (start, end):
            self._metadata.check_position(_known(offset), "the offset")
        starts = (start.at or Position()).merge(end.begun)
        ranges = []
        for partition, last in end.at.items():
            first = starts.get(partition)
            if first is None or first > last:
                msg = f"the batch has no start of {partition} before {last}"
                raise PositionRefused(msg, partition=partition, offset=last)
            if first < last:
                life = end.at.incarnations.get(partition)
                ranges.append(Range(partition, first, last, life))
        return self._split(ranges)

    def _split(self, ranges: Sequence[Range]) -> list[Range]:
        config = self._config
        return split(
            ranges, config.get("minPartitions"), config.get("maxRecordsPerPartition")
        )

    def _end(self, info: PartitionInfo) -> int:
        if self._target is not None:
            return self._target.get(info.partition, 0)
        return info.latest or 0

    def _waits(
        self, start: BatchOffset, waiting: int, begun: Mapping[Partition, int]
    ) -> bool:
        # A first batch pins the start, whatever waits; a target is never waited for.
        if start.at is None or begun or self._target is not None:
            return False
        return waiting == 0 or self._admission.waits(waiting)

    def _starts(
        self, start: BatchOffset, infos: Sequence[PartitionInfo]
    ) -> tuple[dict[Partition, int], dict[Partition, int]]:
        """Where each partition begins, and of those the ones to be pinned."""
        known = start.begun if start.at is None else start.at
        starts: dict[Partition, int] = {}
        begun: dict[Partition, int] = {}
        for info in infos:
            partition = info.partition
            wanted = known.get(partition)
            if wanted is None:
                if self._target is not None and partition not in self._target:
                    continue  # it came after the target: the next run takes it
                if info.state is PartitionState.VANISHED:
                    continue
                starts[partition] = begun[partition] = info.earliest
                continue
            if info.state is PartitionState.VANISHED:
                self._policy.vanished(partition, wanted, "after the last batch")
                continue
            life = known.incarnations.get(partition)
            first, _ = self._policy.start(info, wanted, life)
            starts[partition] = first
            if start.at is None or first != wanted:
                begun[partition] = first
        return starts, begun


def _known(offset: BatchOffset) -> Position:
    return (offset.at or Position()).merge(offset.begun)


def _position(
    offsets: Mapping[Partition, int], infos: Sequence[PartitionInfo]
) -> Position:
    lives = {
        info.partition: info.incarnation
        for info in infos
        if info.incarnation is not None and info.partition in offsets
    }
    return Position(offsets, lives)


def _latest(infos: Sequence[PartitionInfo]) -> Position:
    known = {i.partition: i.latest for i in infos if i.latest is not None}
    return _position(known, infos)


def check_shared(source: Source) -> None:
    """Refuse a stream that other processes cannot read, or not again.

    Raises:
        Unsupported: misuse.
    """
    missing = [
        word
        for word, claimed in (
            ("replayable", source.claims.replayable),
            ("shared between processes", source.claims.shared),
        )
        if not claimed
    ]
    if missing:
        msg = f"{source.config.type} is not {' and not '.join(missing)}: Spark reads "
        msg += "ranges in other processes, and again after a failure"
        remedy = (
            "set spool.path where `streamfactory spool` receives it, or `streamfactory "
            "copy` it into a stream of type file and read that"
        )
        raise Unsupported(msg, stream=source.config.name, remedy=remedy)
