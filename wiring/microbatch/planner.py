"""Plans micro-batches: from offsets to the next offset and ranges.

Offsets contain everything that a replay needs, because a restarted driver, or a task,
has no other state.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, final

from streamfactory.spi import (
    DataLossError,
    OffsetOutOfRange,
    PartitionInfo,
    PartitionState,
    Position,
    PositionRefused,
    Unsupported,
)
from streamfactory.wiring.microbatch.admission import Admission
from streamfactory.wiring.microbatch.offsets import BatchOffset
from streamfactory.wiring.microbatch.ranges import Range, split, whole
from streamfactory.wiring.reading.extents import advance
from streamfactory.wiring.reading.losses import LossPolicy
from streamfactory.wiring.reading.starts import plan_read, starting_offsets

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streamfactory.spi import Extent, Partition
    from streamfactory.wiring.reading.source import Source
    from streamfactory.wiring.reading.starts import Start

_WRAPPER_REMEDY: Final = (
    "unset spark.sql.streaming.triggerAvailableNowWrapper.enabled, or the limits of "
    "batches, and remove the last file of the checkpoint's folder offsets"
)
SPARSE_TASK: Final = 1 << 20
"""Maximum messages of a task if offsets are sparse and no limit is set, so that a
snapshot is read in parallel."""
_RECOUNT: Final = 0.25
"""Minimum seconds from a look-up that found no message to the next one: offsets that
are sparse may move all the time."""


@final
class Planner:
    """Plans batches of one stream. Not thread-safe.

    Args:
        source: The stream.
        admission: Limits of a batch; by default those of the configuration.
    """

    def __init__(self, source: Source, admission: Admission | None = None) -> None:
        self._source = source
        self._config = source.config
        self._metadata = source.metadata
        self._admission = admission or Admission(
            source.config, source.clock, source.throttle
        )
        self._policy = LossPolicy.of(source.config)
        self._available_now = False
        self._draining = False
        self._target: dict[Partition, int] | None = None
        self._infos: Sequence[PartitionInfo] = ()
        """The partitions, when last fetched."""
        self._newest: Position | None = None
        """Their latest offsets, if known yet."""
        self._caught_up: tuple[BatchOffset, bool, Sequence[PartitionInfo]] | None = None
        """The last start behind which there was nothing to read, whether limits
        applied, and the partitions: a query without new messages polls for these."""
        self._count_after = 0.0

    @property
    def limited(self) -> bool:
        """Whether the configuration limits batches."""
        return self._admission.limits

    @property
    def newest(self) -> Position | None:
        """The latest offsets of all partitions, when last fetched."""
        if self._newest is None and self._infos:
            self._newest = _latest(self._infos)
        return self._newest

    # --- batch queries ----------------------------------------------------------

    def batch(self) -> list[Range]:
        """Return the ranges of a batch query, by the start and end options.

        Raises:
            OffsetOutOfRange: data_loss; a start is out of range.
            ConfigError: config; offsets are set for other partitions.
        """
        return self._split(self.partition_ranges())

    def partition_ranges(
        self, start: Start | None = None, end: Position | None = None
    ) -> list[Range]:
        """Return one range of each partition that has offsets to read.

        Args:
            start: Has precedence over the start options; None applies these.
            end: Has precedence over the end options for its partitions.

        Raises:
            OffsetOutOfRange: data_loss; a start is out of range.
            ConfigError: config; offsets are set for other partitions.
            PositionRefused: permanent; ``end`` is of another stream.
            IncarnationChanged: data_loss; ``end`` is of a topic that was recreated,
                and ``out.of.range=fail``. Otherwise its offset is applied to the new
                topic.
        """
        infos, starts, ends, incarnations = plan_read(
            self._config, self._metadata, start=start, default="earliest"
        )
        ends = ends or {}  # never followed: there is one for each partition
        if end is not None:
            self._metadata.check_position(end, "the end")
            ends = {**ends, **dict(end.items())}
        ranges = []
        for info in infos:
            first, last = starts.get(info.partition), ends.get(info.partition)
            if first is None or last is None:
                continue
            first, _ = self._policy.start(info, first, incarnations.get(info.partition))
            incarnation = None if end is None else end.incarnations.get(info.partition)
            last = self._policy.end(info, last, incarnation)
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
        return ranges

    # --- streaming queries ------------------------------------------------------

    def initial(self) -> BatchOffset:
        """Return the start of a new query."""
        infos = self._metadata.partitions()
        starts = starting_offsets(
            self._config, self._metadata, infos, start=None, default="latest"
        )
        return BatchOffset(None, _position(starts, infos))

    def first(self, initial: BatchOffset) -> BatchOffset:
        """Return an end for a query that is new, or at an offset not known here.

        It pins the start of a new query. For another one it holds what `ranges` needs
        to continue from any offset.

        Args:
            initial: The start, if the query is new.
        """
        end = self.latest(initial)
        kept = {info.partition: info.earliest for info in self._metadata.partitions()}
        ends = end.at or Position()
        return replace(end, earliest=Position({p: kept.get(p, ends[p]) for p in ends}))

    def prepare_for_available_now(self) -> None:
        """Fix the end at the next call of `latest`.

        Not earlier, because the start of a new query may be resolved after this call.
        """
        self._available_now, self._caught_up = True, None

    def drain(self) -> None:
        """Plan no further offsets from here on."""
        self._draining, self._caught_up = True, None

    def latest(self, start: BatchOffset, *, limited: bool = True) -> BatchOffset:
        """Return the end of the next batch; ``start`` if there is nothing to read.

        Args:
            start: The start of the batch.
            limited: Whether the limits of the configuration apply.

        Raises:
            OffsetOutOfRange, IncarnationChanged, PartitionVanished: data_loss; under
                ``out.of.range=fail``.
            PositionRefused: permanent; the offset is of another stream.
        """
        known = _known(start)
        self._metadata.check_position(known, "the offset")
        self._admission.look()
        limited = limited or self._admission.rated
        infos = self._metadata.partitions(known=known)
        asked = start, limited, infos
        if asked == self._caught_up:
            return start
        self._infos, self._newest = infos, None
        if self._available_now and self._target is None:
            self._target = {i.partition: i.latest or 0 for i in infos}
        starts, begun = self._starts(start, infos)
        ends = self._ends(starts, infos)
        # The first batch pins the start without delay; there is no delay before a
        # target.
        may_wait = start.at is not None and not begun and self._target is None
        if self._draining:
            ends = dict(starts)
        elif may_wait and self._is_idle(asked, starts, ends):
            return start
        elif limited:
            # Messages are counted where that decides something: it may cost a look-up.
            backlog = self._backlog(starts, ends)
            waiting = sum(backlog.values())
            if may_wait and (ends == starts or self._admission.waits(waiting)):
                self._caught_up = None if waiting else asked
                return start
            ends = self._admitted(starts, ends, backlog)
        end = BatchOffset(_position(ends, infos), _position(begun, infos))
        if end.at == start.at and not end.begun:
            self._caught_up = asked
            return start
        self._admission.took()
        return end

    def ranges(self, start: BatchOffset, end: BatchOffset) -> list[Range]:
        """Return the ranges of a batch, which cover the same offsets for every driver.

        Pure, unless offsets are sparse: then the source decides where ranges are cut,
        and a range that it no longer lists is not cut.

        Raises:
            PositionRefused: permanent; an offset is of another stream, or ends before
                it starts.
        """
        if start == end or end.at is None:
            return []
        for offset in (start, end):
            self._metadata.check_position(_known(offset), "the offset")
        starts = dict(self._starts_of(start, end).items())
        ranges = []
        for partition, last in end.at.items():
            first = starts.get(partition)
            if first is None or first > last:
                msg = f"the batch has no start of {partition} before {last}"
                raise PositionRefused(msg, partition=partition, offset=last)
            if first < last:
                incarnation = end.at.incarnations.get(partition)
                ranges.append(Range(partition, first, last, incarnation))
        return self._split(ranges)

    def _starts_of(self, start: BatchOffset, end: BatchOffset) -> Position:
        if start.at is None or end.at is None or end.earliest is None:
            return (start.at or Position()).merge(end.begun)
        # The end was planned without this start: what was removed is detected here.
        starts: dict[Partition, int] = dict(end.earliest.items())
        for partition, wanted in start.at.items():
            if partition not in end.at:
                self._policy.vanished(partition, wanted, "after the last batch")
                continue
            if end.at[partition] < wanted:
                # A limit was applied from the start of a new query.
                msg = (
                    f"the end {end.at[partition]} was planned from the start of a new "
                )
                msg += f"query, but the checkpoint is at {wanted}"
                raise PositionRefused(
                    msg, partition=partition, offset=wanted, remedy=_WRAPPER_REMEDY
                )
            info = PartitionInfo(
                partition,
                earliest=starts[partition],
                latest=end.at[partition],
                incarnation=end.at.incarnations.get(partition),
            )
            incarnation = start.at.incarnations.get(partition)
            starts[partition], _ = self._policy.start(info, wanted, incarnation)
        return Position(starts)

    def check(self, ranges: Sequence[Range]) -> None:
        """Apply the loss policy to ranges that were planned before, as their tasks do.

        Raises:
            OffsetOutOfRange, IncarnationChanged, PartitionVanished: data_loss; under
                ``out.of.range=fail``.
        """
        planned = Position({one.partition: one.start for one in ranges})
        infos = {i.partition: i for i in self._metadata.partitions(known=planned)}
        for one in ranges:
            info = infos[one.partition]
            self._policy.start(info, one.start, one.incarnation, end=one.end)
            self._policy.end(info, one.end, one.incarnation)

    def cut(self, ranges: Sequence[Range], min_partitions: int | None) -> list[Range]:
        """Ranges in about so many parts, where the source allows cuts."""
        return split(ranges, min_partitions, extents=self._extents)

    def _split(self, ranges: Sequence[Range]) -> list[Range]:
        config = self._config
        min_partitions, max_records = (
            config.get("minPartitions"),
            config.get("maxRecordsPerPartition"),
        )
        if (
            max_records is None
            and min_partitions is None
            and ranges
            and self._metadata.sparse
        ):
            max_records = SPARSE_TASK
        return split(ranges, min_partitions, max_records, self._extents)

    def _extents(self, one: Range, most: int | None = None) -> Sequence[Extent]:
        try:
            return self._metadata.extents(one.partition, one.start, one.end, most)
        except DataLossError:
            # It is not cut: its task finds the loss, and applies the policy.
            return whole(one)

    def _is_idle(
        self,
        asked: tuple[BatchOffset, bool, Sequence[PartitionInfo]],
        starts: Mapping[Partition, int],
        ends: Mapping[Partition, int],
    ) -> bool:
        """Whether offsets are sparse, and moved without a message since the last batch.

        A batch of each such move would never end where its acknowledgement moves them.
        """
        if not self._metadata.sparse or self._admission.allows_empty():
            return False
        now = self._source.clock.now()
        if now < self._count_after:
            return True
        ranges = [Range(p, first, ends[p], None) for p, first in starts.items()]
        if any(self._extents(one, 1) for one in ranges):
            return False
        self._caught_up, self._count_after = asked, now + _RECOUNT
        return True

    def _backlog(
        self, starts: Mapping[Partition, int], ends: Mapping[Partition, int]
    ) -> dict[Partition, int]:
        if not self.limited or not self._metadata.sparse:
            return {p: ends[p] - first for p, first in starts.items()}
        return {p: self._metadata.count(p, f, ends[p]) for p, f in starts.items()}

    def _admitted(
        self,
        starts: Mapping[Partition, int],
        ends: Mapping[Partition, int],
        backlog: Mapping[Partition, int],
    ) -> dict[Partition, int]:
        """Where the batch ends, by the limits of the configuration."""
        admitted = dict(ends)
        for p, most in self._admission.share(backlog).items():
            if most < backlog[p]:
                found = self._metadata.extents(p, starts[p], ends[p], most + 1)
                admitted[p] = advance(found, most, ends[p])
        return admitted

    def _ends(
        self, starts: Mapping[Partition, int], infos: Sequence[PartitionInfo]
    ) -> dict[Partition, int]:
        """Where the batch ends without limits: at the target, or at the latest."""
        target = self._target
        if target is None:
            target = {info.partition: info.latest or 0 for info in infos}
        return {p: max(first, target.get(p, 0)) for p, first in starts.items()}

    def _starts(
        self, start: BatchOffset, infos: Sequence[PartitionInfo]
    ) -> tuple[dict[Partition, int], dict[Partition, int]]:
        """Return the start of each partition, and the starts to pin."""
        known = start.begun if start.at is None else start.at
        offsets, incarnations = dict(known.items()), known.incarnations
        starts: dict[Partition, int] = {}
        begun: dict[Partition, int] = {}
        for info in infos:
            partition = info.partition
            wanted = offsets.get(partition)
            if wanted is None:
                if self._target is not None and partition not in self._target:
                    continue  # created after the target: the next run reads it
                if info.state is PartitionState.VANISHED:
                    continue
                starts[partition] = begun[partition] = info.start
                continue
            if info.state is PartitionState.VANISHED:
                self._policy.vanished(partition, wanted, "after the last batch")
                continue
            first, _ = self._policy.start(info, wanted, incarnations.get(partition))
            starts[partition] = first
            if start.at is None or first != wanted:
                begun[partition] = first
        return starts, begun


def _known(offset: BatchOffset) -> Position:
    return (offset.at or Position()).merge(offset.begun)


def _position(
    offsets: Mapping[Partition, int], infos: Sequence[PartitionInfo]
) -> Position:
    incarnations = {
        info.partition: info.incarnation
        for info in infos
        if info.incarnation is not None and info.partition in offsets
    }
    return Position(offsets, incarnations)


def _latest(infos: Sequence[PartitionInfo]) -> Position:
    known = {i.partition: i.latest for i in infos if i.latest is not None}
    return _position(known, infos)


def check_shared(source: Source) -> None:
    """Refuse a stream that other processes cannot read, or that cannot be read again.

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
