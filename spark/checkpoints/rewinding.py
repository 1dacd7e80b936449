"""Moves the position of a pipeline, as a decision that sinks distinguish from a replay.

A new generation starts: a new query id, and so new writer ids. An exactly-once sink
therefore writes the rows again, instead of recognising epochs that it has.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, final

from streamfactory.spark.checkpoints.holding import changing, hold, running
from streamfactory.spark.checkpoints.record import RECORD, Change, Record, read_record
from streamfactory.spark.checkpoints.resolving import Reset
from streamfactory.spark.checkpoints.starting import check_streams, start_options
from streamfactory.spi import MisuseError, Position, PositionRefused
from streamfactory.wiring.streams.positions import moved_position

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streamfactory.spark.checkpoints.places import Place
    from streamfactory.spark.checkpoints.reading import QueryCheckpoint
    from streamfactory.spi import Partition
    from streamfactory.wiring.reading.position_arguments import Marks
    from streamfactory.wiring.reading.source import Source


@final
@dataclass(frozen=True, slots=True)
class Rewound:
    """The change of one partition."""

    partition: Partition
    before: int | None
    """First offset that is not processed; None for a partition that was not read."""
    after: int
    """First offset that the next batch reads."""
    again: int
    """Offsets that are written again."""
    skipped: int
    """Offsets that are never written."""


@final
@dataclass(frozen=True, slots=True)
class Rewind:
    """A planned change of a pipeline's position."""

    record: Record
    """As it was when this was planned."""
    position: Position
    """The new one."""
    unfinished: int | None
    """A batch that was planned and not finished: sinks may have its rows already."""
    partitions: tuple[Rewound, ...]

    @property
    def again(self) -> int:
        """Offsets that are written again, of all partitions."""
        return sum(one.again for one in self.partitions)

    @property
    def skipped(self) -> int:
        """Offsets that are never written, of all partitions."""
        return sum(one.skipped for one in self.partitions)


def plan_rewind(
    place: Place,
    record: Record | None,
    query: QueryCheckpoint,
    source: Source,
    to: Marks | None = None,
    *,
    batch: int | None = None,
) -> Rewind:
    """Plan a change; nothing is stored.

    Args:
        place: The folder of the pipeline.
        record: Its record.
        query: The checkpoint of its current generation.
        source: Its stream.
        to: The new position; partitions that are not named stay.
        batch: Instead of ``to``: the batch to read again, and all later ones.

    Raises:
        PositionRefused: permanent; no batch was planned, the batch is not kept, or the
            checkpoint belongs to another stream.
        MisuseError: misuse; the checkpoint is not a pipeline's, or the stream has a
            start option of its own that takes precedence.
        DataLossError: data_loss; the stream does not have the new offsets any more.
        StreamError: As `moved_position`.
    """
    if record is None:
        msg = f"{place.text} is not the checkpoint of a pipeline"
        remedy = "restart the query with a new checkpointLocation and startingOffsets"
        raise MisuseError(msg, remedy=remedy)
    positions = query.positions()
    if positions is None:
        msg = f"{place.text}: no batch was planned, so there is nothing to move"
        raise PositionRefused(msg, remedy="start the pipeline with --reset")
    last = query.batch(query.planned[-1])
    # A query that reads its stream several times has a source for each scan.
    check_streams(place.text, last, [source] * len(last.sources))
    before = _combined(positions, min)
    if batch is not None:
        to = _start_of(query, batch)
    assert to is not None
    after = moved_position(source, before, to)
    # Checks the rules of a run, and that the offsets are available.
    _start(record, after, source)
    written = _combined([one.position for one in last.sources], max)
    partitions = tuple(
        _rewound(p, before.get(p), after[p], written.get(p)) for p in sorted(after)
    )
    return Rewind(record, after, query.unfinished, partitions)


def apply_rewind(
    place: Place, plan: Rewind, source: Source, *, why: str, force: bool = False
) -> Record:
    """Store a planned change: the next run starts a new generation there.

    The overrides that were applied last stay remembered, so that a supervisor's
    ``--reset`` is not applied again.

    Args:
        place: The folder of the pipeline.
        plan: The change.
        source: The stream of the pipeline.
        why: The reason, for the record.
        force: Whether to store it although a run may be using the checkpoint.

    Raises:
        MisuseError: misuse; a run is using the checkpoint.
        PositionRefused: permanent; the record changed since this was planned.
        CheckpointFailed: permanent; the record was not stored.
    """
    used = None if force else running(place)
    if used is not None:
        msg = f"{place.text} cannot be changed: {used}"
        raise MisuseError(msg, remedy="stop the pipeline first")
    with nullcontext() if force else hold(place), changing(place):
        record = plan.record
        if read_record(place) != record:
            msg = f"{place.text} was changed meanwhile"
            raise PositionRefused(msg, remedy="run the command again")
        generation = record.generation + 1
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        after = replace(
            record,
            generation=generation,
            begun=False,
            start=_start(record, plan.position, source),
            history=(*record.history, Change(generation, now, why)),
        )
        place.replace(RECORD, after.to_json().encode())
    return after


def _start(
    record: Record, position: Position, source: Source
) -> tuple[dict[str, str], ...]:
    """The start options of each scan of the stream."""
    reset = Reset(position.to_json(), position)
    scans = {f"scan {number}": source for number in range(len(record.sources))}
    return start_options(reset, scans)


def _combined(positions: Sequence[Position], choose: Callable[..., int]) -> Position:
    """One position of several scans, which may differ by a few rows."""
    found = Position()
    for one in positions:
        offsets = {p: choose(offset, found.get(p, offset)) for p, offset in one.items()}
        found = found.merge(Position(offsets, one.incarnations))
    return found


def _start_of(query: QueryCheckpoint, batch: int) -> Position:
    """Where a batch started."""
    first = query.batch(batch)  # refused if it was not planned, or is not kept
    if batch == 0:
        return _combined([one.offset.begun for one in first.sources], min)
    before = query.batch(batch - 1)
    return _combined([one.position for one in before.sources], min)


def _rewound(
    partition: Partition, before: int | None, after: int, written: int | None
) -> Rewound:
    """Compare with what may be written: the end of an unfinished batch, too."""
    end = before if written is None else written
    again = 0 if end is None else max(0, end - after)
    skipped = 0 if before is None else max(0, after - before)
    return Rewound(partition, before, after, again, skipped)
