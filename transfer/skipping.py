"""What a copy skips to be on time, and what its backfill has read since."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from streamfactory.spi import ConfigError, MisuseError, Position, Sample
from streamfactory.wiring.core.guard import log
from streamfactory.wiring.metrics import vocabulary as v
from streamfactory.wiring.metrics.registry import registry
from streamfactory.wiring.reading.skipping import Freshness, remaining

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from streamfactory.spi import Partition, Skipped
    from streamfactory.wiring.reading.rotation import Rotation
    from streamfactory.wiring.reading.source import Source
    from streamfactory.wiring.writing.sink import Sink

_BACKFILL: Final = "/backfill"
_FORGET: Final = 10.0
"""Seconds between two looks at what the backfill has read."""


def copy_writer(source: str, sink: str) -> str:
    """Return the writer id of a copy between streams of these names, by default."""
    return f"copy/{source}/{sink}"


def backfill_writer(writer_id: str) -> str:
    """Return the writer id of the backfill of a copy."""
    return writer_id + _BACKFILL


def check_writer(writer_id: str | None, stream: str) -> None:
    """Refuse a copy with the writer id of a backfill.

    Its position would be taken for what the backfill has read.

    Raises:
        MisuseError: misuse.
    """
    if writer_id is not None and writer_id.endswith(_BACKFILL):
        msg = f"writer id {writer_id!r} is that of a backfill"
        remedy = f"use one that does not end in {_BACKFILL}"
        raise MisuseError(msg, stream=stream, remedy=remedy)


def find_skipped(sink: Sink, writer_id: str) -> tuple[Skipped, ...]:
    """Return the ranges that a copy has skipped, as its sink has them.

    Its backfill may have read some of them.

    Raises:
        MisuseError: misuse; the copy has committed nothing.
        StreamError: The sink cannot be reached.
    """
    position = sink.last_position(writer_id)
    if position is None:
        msg = f"no copy has committed as writer id {writer_id!r}"
        remedy = "give the streams and the writer id of the copy that skipped rows"
        raise MisuseError(msg, stream=sink.config.name, remedy=remedy)
    return position.skipped


def open_ranges(sink: Sink, writer_id: str) -> tuple[Skipped, ...]:
    """Return the skipped ranges of a copy that its backfill has still to read.

    Raises:
        MisuseError: misuse; the copy has committed nothing.
        StreamError: The sink cannot be reached.
    """
    # In this order: what is read between is not shown as open.
    ranges = find_skipped(sink, writer_id)
    return remaining(
        ranges, sink.last_position(backfill_writer(writer_id)) or Position()
    )


@final
class Skipping:
    """Skips what is too late in one copy. One thread.

    The sink stores the ranges with the position of the copy, and the position of the
    backfill with its rows: so both are exact after any end of a process.

    Args:
        source: The source of the copy, with the options ``fresh.*``.
        sink: The sink.
        writer_id: Writer id of the copy.
        job: Its name as a job, in metrics.

    Raises:
        ConfigError: config; rows are to be skipped, and the sink stores no position,
            or the source cannot be read again.
    """

    def __init__(self, source: Source, sink: Sink, writer_id: str, job: str) -> None:
        self.ranges: list[Skipped] = []
        """What this run has skipped."""
        self._sink = sink
        self._backfill = backfill_writer(writer_id)
        self._clock = source.clock
        self._name = source.config.name
        self._freshness = Freshness(source)
        self._tally = _Tally(job)
        if self._freshness.asked:
            _check(source, sink)
        registry.track(self, self._tally)
        self.begin(Position())

    def begin(self, position: Position) -> None:
        """Begin a pass at a position."""
        self._open = bool(position.skipped)
        self._look = self._forget = self._clock.now()

    def look(
        self, rotation: Rotation, *, follow: bool
    ) -> tuple[dict[Partition, int], bool]:
        """Return where late partitions continue, and whether the position has changed.

        It changes if the backfill has read ranges: these are removed.

        Args:
            rotation: Reads the source.
            follow: Whether the copy follows its source.

        Raises:
            StreamError: As either end raises.
        """
        now = self._clock.now()
        asked = follow and self._freshness.asked
        if now < self._look or not (asked or self._open):
            return {}, False
        self._look = now + self._freshness.period
        before = rotation.position
        late = self._freshness.late(before) if asked else {}
        if not late:
            self._freshness.stopped = False
        if late or (before.skipped and now >= self._forget):
            self._forget = now + _FORGET
            done = self._sink.last_position(self._backfill) or Position()
            rotation.keep_skipped(remaining(before.skipped, done))
            late = self._freshness.admit(late, rotation.position, done)
        self._note(rotation.position)
        return late, rotation.position != before

    def skip(self, rotation: Rotation, targets: Mapping[Partition, int]) -> None:
        """Continue at later offsets; the position has the ranges between."""
        for one in rotation.skip(targets):
            text = "stream %r, partition %s: skipped offsets %d to %d to be on time"
            log.warning(text, self._name, one.partition, one.start, one.end)
            self.ranges.append(one)
            self._tally.offsets += one.size
        self._note(rotation.position)

    def _note(self, position: Position) -> None:
        self._open = bool(position.skipped)
        self._tally.open = position.skipped
        self._tally.stopped = self._freshness.stopped


def _check(source: Source, sink: Sink) -> None:
    remedy = "remove fresh.within.millis and fresh.within.rows"
    if not sink.claims.idempotent:
        msg = "what is skipped to be on time is recorded in the sink, and type "
        msg += f"{sink.config.type!r} stores no positions"
        raise ConfigError(msg, stream=sink.config.name, remedy=remedy)
    if not source.claims.replayable:
        msg = "what is skipped to be on time is read later, and type "
        msg += f"{source.config.type!r} cannot be read again"
        raise ConfigError(msg, stream=source.config.name, remedy=remedy)


class _Tally:
    """The metrics of what a copy skips."""

    def __init__(self, job: str) -> None:
        self._job = job
        self.offsets = 0
        self.open: tuple[Skipped, ...] = ()
        self.stopped = False

    def counters(self) -> Iterator[Sample]:
        """See `Tally`."""
        if self.offsets:
            yield Sample(v.SKIPPED_OFFSETS, (self._job,), self.offsets)

    def gauges(self) -> Iterator[Sample]:
        """See `Tally`."""
        ranges = self.open
        if ranges or self.offsets:
            job = (self._job,)
            yield Sample(v.SKIPPED_OPEN_RANGES, job, len(ranges))
            yield Sample(v.SKIPPED_OPEN_OFFSETS, job, sum(one.size for one in ranges))
            yield Sample(v.SKIPPING_STOPPED, job, self.stopped)
