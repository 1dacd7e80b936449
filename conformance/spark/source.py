"""The source, as the driver of a micro-batch query holds it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, final

from streamfactory.conformance.spark import ship
from streamfactory.spi import (
    IncarnationChanged,
    OffsetOutOfRange,
    Partition,
    PartitionInfo,
    PartitionState,
    PartitionVanished,
    Position,
    PositionRefused,
)
from streamfactory.wiring.configure import Configured
from streamfactory.wiring.source import Source
from streamfactory.wiring.starts import starting_offsets

if TYPE_CHECKING:
    from collections.abc import Sequence


@final
@dataclass(frozen=True, slots=True)
class SparkOffset:
    """What Spark keeps as text, and compares as text.

    Mostly the text of a position. Where partitions are new to it, their starts travel
    along: whatever replays the batch finds them there, and asks nobody (the pin of
    batch 0, to which all partitions are new).
    """

    at: Position | None
    """Where the next batch begins. None in an initial offset, which no end equals: so
    batch 0 is always logged, rows or not."""
    begun: Position = field(default_factory=Position)
    """The starts of the partitions that the offset before this one has not."""

    def to_text(self) -> str:
        """One canonical line."""
        if self.at is not None and not self.begun:
            return self.at.to_json()
        at = None if self.at is None else self.at.to_json()
        return json.dumps({"at": at, "begun": self.begun.to_json()}, sort_keys=True)

    @classmethod
    def parse(cls, text: str) -> SparkOffset:
        """Read it back; PositionRefused for anything else."""
        try:
            body = json.loads(text)
        except (ValueError, RecursionError) as error:
            msg = f"not an offset: {text!r} is not JSON"
            raise PositionRefused(msg) from error
        if not isinstance(body, dict) or set(body) != {"at", "begun"}:
            return cls(Position.from_json(text))
        at = None if body["at"] is None else Position.from_json(str(body["at"]))
        return cls(at, Position.from_json(str(body["begun"])))


@final
@dataclass(frozen=True, slots=True)
class Task:
    """A range for one executor. Pickles."""

    partition: Partition
    start: int
    end: int
    incarnation: str | None
    """What the offsets count: the executor refuses another one."""


@final
class SparkSource:
    """The source as a driver holds it: text in, text out.

    What one driver learnt no other knows, and no task does.
    """

    def __init__(self, configured: Configured) -> None:
        self._source = Source(ship_configured(configured))
        self._metadata = self._source.metadata
        self._available_now = False
        self._target: dict[Partition, int] | None = None

    def initial_offset(self) -> str:
        """Where a new query begins, as things are now."""
        infos = self._metadata.partitions()
        starts = starting_offsets(
            self._source.config, self._metadata, infos, start=None, default="latest"
        )
        return SparkOffset(None, _position(starts, infos)).to_text()

    def prepare_for_available_now(self) -> None:
        """From here on the end is fixed, once it is first asked for."""
        self._available_now = True

    def latest_offset(self, start: str, share: int = 1) -> str:
        """Where the next batch ends.

        Args:
            start: Where it begins.
            share: Take this part of what is waiting, at least an offset a partition.
        """
        before = self._parse(start)
        at = before.begun if before.at is None else before.at
        infos = self._metadata.partitions(known=at)
        self._fix_target(infos)
        begun, ends = dict(before.begun) if before.at is None else {}, {}
        for info in infos:
            latest = self._latest(info)
            if info.partition in at:
                first = at[info.partition]
                self._check(info, first, at.incarnations.get(info.partition))
            elif latest is None:
                continue  # it came after the target: the next run takes it
            else:
                first = begun[info.partition] = info.earliest
            waiting = max(0, (latest or 0) - first)
            ends[info.partition] = first - (-waiting // share)
        end = SparkOffset(_position(ends, infos), _position(begun, infos))
        return start if end == SparkOffset(before.at) else end.to_text()

    def partitions(self, start: str, end: str, pieces: int = 1) -> list[Task]:
        """The tasks of a batch, each range in so many pieces. Pure: asks nobody."""
        before, after = self._parse(start), self._parse(end)
        assert after.at is not None
        starts = (before.at or Position()).merge(after.begun)
        return [
            Task(partition, first, last, after.at.incarnations.get(partition))
            for partition, stop in after.at.items()
            for first, last in _pieces(starts[partition], stop, pieces)
        ]

    def commit(self, end: str) -> None:
        """Take advice: our offsets live in Spark's log, so there is nothing to do."""
        self._parse(end)

    def close(self) -> None:
        """Close the metadata and the factory."""
        self._source.close()

    def _parse(self, text: str) -> SparkOffset:
        offset = SparkOffset.parse(text)
        for partition in (offset.at or Position()).merge(offset.begun):
            if not self._metadata.covers(partition.topic):
                msg = f"the offset is of {partition.topic!r}, which is another stream"
                raise PositionRefused(msg, stream=self._source.config.name)
        return offset

    def _fix_target(self, infos: Sequence[PartitionInfo]) -> None:
        # Not before it is asked for: the start may be later than that.
        if self._available_now and self._target is None:
            self._target = {i.partition: i.latest or 0 for i in infos}

    def _latest(self, info: PartitionInfo) -> int | None:
        return info.latest if self._target is None else self._target.get(info.partition)

    def _check(self, info: PartitionInfo, first: int, life: str | None) -> None:
        """Loss is told here where it can be: tasks have no way back (rule R7).

        Whatever ``out.of.range`` says: to go on after a loss is not simulated.
        """
        partition, found = info.partition, info.incarnation
        if info.state is PartitionState.VANISHED:
            msg = "the partition is not there any more"
            raise PartitionVanished(msg, partition=partition, offset=first)
        if None not in (life, found) and life != found:
            msg = f"the offsets counted {life!r}, the stream is now {found!r}"
            raise IncarnationChanged(
                msg, expected=life, found=found, partition=partition, offset=first
            )
        if first < info.earliest or (info.latest is not None and first > info.latest):
            msg = f"the stream has {info.earliest} to {info.latest}, not {first}"
            raise OffsetOutOfRange(
                msg,
                earliest=info.earliest,
                latest=info.latest,
                partition=partition,
                offset=first,
            )


def ship_configured(configured: Configured) -> Configured:
    """The configuration as it arrives in another process, its plug-ins found there."""
    return Configured(ship(configured.config), configured.backend, configured.decoder)


def _position(
    offsets: dict[Partition, int], infos: Sequence[PartitionInfo]
) -> Position:
    lives = {i.partition: i.incarnation for i in infos if i.incarnation is not None}
    return Position(offsets, lives)


def _pieces(start: int, end: int, pieces: int) -> list[tuple[int, int]]:
    """A range in parts; an empty one has none."""
    cuts = {start + (end - start) * piece // pieces for piece in range(pieces + 1)}
    return list(pairwise(sorted(cuts)))
