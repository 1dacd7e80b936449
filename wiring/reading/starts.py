"""Resolves start and end options, as in Spark's Kafka source, for every backend.

The precedence of start options is: timestamp, timestamps by partition, offsets, Pinot's
reset, default. A checkpoint has precedence over all; callers handle it.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streamfactory.spi import (
    ConfigError,
    MisuseError,
    Partition,
    PartitionState,
    Position,
    Problem,
)
from streamfactory.spi.arguments import Kind
from streamfactory.wiring.options.types import Ago
from streamfactory.wiring.reading.extents import advance

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streamfactory.spi import PartitionInfo, StreamConfig
    from streamfactory.wiring.reading.metadata import Metadata

_EARLIEST: Final = -2
_LATEST: Final = -1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_WORDS: Final = {"smallest": "earliest", "largest": "latest"}

Start = str | date | timedelta | Position
"""``earliest``, ``latest``, a time, a date, a period before now, or a position."""


def _start(value: Any) -> Any:
    if isinstance(value, str) and value.lower() in {*_WORDS, *_WORDS.values()}:
        return value
    if not isinstance(value, date | timedelta | Position):
        raise TypeError
    return value


START: Final = Kind(
    "use earliest, latest, a datetime, a date, a timedelta or a Position", _start
)


class Planned(NamedTuple):
    """The partitions of a stream, and where a read of each starts and ends."""

    infos: Sequence[PartitionInfo]
    starts: dict[Partition, int]
    """Inclusive."""
    ends: dict[Partition, int | None] | None
    """Exclusive, as of `ending_offsets`; None if the stream is followed."""
    incarnations: Mapping[Partition, str]
    """Incarnations of the starts, if a position has them."""


def plan_read(
    config: StreamConfig,
    metadata: Metadata,
    *,
    start: Start | None,
    default: str,
    follow: bool = False,
    back: int | None = None,
) -> Planned:
    """Fetch the partitions, and resolve where a read of each starts and ends.

    Args:
        config: Has the start and end options.
        metadata: Returns partitions, and looks up times.
        start: Has precedence over all start options; None applies these.
        default: See `starting_offsets`.
        follow: Whether the read has no end.
        back: Start so many offsets before the latest of each partition instead.

    Raises:
        PositionRefused: permanent; the start is of another stream.
        ConfigError: config; see `starting_offsets`.
        StreamError: Raised by the source when its partitions are fetched.
    """
    known = start if isinstance(start, Position) else Position()
    metadata.check_position(known)
    infos = metadata.partitions(known)
    if back is None:
        starts = starting_offsets(config, metadata, infos, start=start, default=default)
    else:
        starts = {i.partition: before_latest(metadata, i, back) for i in infos}
    ends = None if follow else ending_offsets(config, metadata, infos)
    return Planned(infos, starts, ends, known.incarnations)


def starting_offsets(
    config: StreamConfig,
    metadata: Metadata,
    infos: Sequence[PartitionInfo],
    *,
    start: Start | None,
    default: str,
) -> dict[Partition, int]:
    """Return the first offset to read of each partition.

    Args:
        config: Has the start options.
        metadata: Looks up times.
        infos: The current partitions.
        start: The caller's start, with precedence over all options.
        default: ``earliest`` or ``latest``, if no option is set and the source has no
            beginning of its own (`PartitionInfo.begin`).

    Raises:
        ConfigError: config; offsets are set for other partitions than exist, or no
            message is as late as a given time.
    """
    resolver = _Resolver(config, metadata, infos)
    if start is not None:
        return resolver.given(start)
    if "startingTimestamp" in config:
        strategy = config["startingOffsetsByTimestampStrategy"]
        return resolver.at_time(config["startingTimestamp"], strategy)
    if "startingOffsetsByTimestamp" in config:
        strategy = config["startingOffsetsByTimestampStrategy"]
        times = config["startingOffsetsByTimestamp"]
        return resolver.at_times("startingOffsetsByTimestamp", times, strategy)
    if "startingOffsets" in config:
        return resolver.at_offsets("startingOffsets", config["startingOffsets"])
    if "consumer.prop.auto.offset.reset" not in config:
        return resolver.by_default(default)
    reset = config["consumer.prop.auto.offset.reset"]
    if isinstance(reset, str):
        return resolver.at_word(reset)
    now = int(datetime.now(UTC).timestamp() * 1000)
    millis = max(0, now - reset.millis) if isinstance(reset, Ago) else reset
    # As in Pinot: the latest, if no message is that late.
    return resolver.at_time(millis, "latest")


def ending_offsets(
    config: StreamConfig, metadata: Metadata, infos: Sequence[PartitionInfo]
) -> dict[Partition, int | None]:
    """Return the end of a batch, exclusive; None if only the stream's end ends it.

    A time after the last message resolves to the latest.

    Raises:
        ConfigError: config; see `starting_offsets`.
    """
    there = [info for info in infos if info.state is not PartitionState.VANISHED]
    resolver = _Resolver(config, metadata, there)
    ends: dict[Partition, int | None] = {i.partition: i.latest for i in infos}
    if "endingTimestamp" in config:
        ends |= resolver.at_time(config["endingTimestamp"], "latest")
    elif "endingOffsetsByTimestamp" in config:
        times = config["endingOffsetsByTimestamp"]
        ends |= resolver.at_times("endingOffsetsByTimestamp", times, "latest")
    elif config.get("endingOffsets", "latest") != "latest":
        ends |= resolver.at_offsets("endingOffsets", config["endingOffsets"])
    return ends


def _before_now(period: timedelta) -> datetime:
    """Return the time that a period ago was.

    Raises:
        MisuseError: misuse; the period is negative, or longer than there are dates.
    """
    try:
        if period >= timedelta():
            return datetime.now(UTC) - period
    except OverflowError:
        pass
    msg = f"the start {period!r} is no period before now"
    raise MisuseError(msg, remedy="use a timedelta of 0 or more")


def before_latest(metadata: Metadata, info: PartitionInfo, back: int) -> int:
    """Return the offset that has so many messages behind it, or all that are held."""
    if info.latest is None:
        return info.start
    if not metadata.sparse:
        return max(info.earliest, info.latest - back)
    held = metadata.extents(info.partition, info.start, info.latest)
    return advance(held, max(0, sum(e.end - e.start for e in held) - back), info.latest)


class _Resolver:
    def __init__(
        self, config: StreamConfig, metadata: Metadata, infos: Sequence[PartitionInfo]
    ) -> None:
        self._config = config
        self._metadata = metadata
        self._infos = {info.partition: info for info in infos}

    def given(self, start: Start) -> dict[Partition, int]:
        if isinstance(start, Position):
            # A partition that the position lacks is new: read from its earliest offset.
            return {p: start.get(p, i.start) for p, i in self._infos.items()}
        if isinstance(start, timedelta):
            start = _before_now(start)
        elif isinstance(start, date) and not isinstance(start, datetime):
            start = datetime.combine(start, time(), UTC)
        if isinstance(start, datetime):
            if start.tzinfo is None:
                msg = f"the start {start} has no time zone"
                raise MisuseError(msg, remedy="add one: datetime(..., tzinfo=UTC)")
            # Rounded down to milliseconds, like stored times: so that no row is missed.
            millis = (start - _EPOCH) // timedelta(milliseconds=1)
            return self.at_time(millis, "latest")
        word = str(start).lower()
        word = _WORDS.get(word, word)
        if word not in ("earliest", "latest"):
            msg = f"the start {start!r} is neither earliest nor latest"
            remedy = "use one of these, a datetime, a date, a timedelta or a Position"
            raise MisuseError(msg, remedy=remedy)
        return self.at_word(word)

    def by_default(self, word: str) -> dict[Partition, int]:
        found = self.at_word(word)
        begun = {p: i.begin for p, i in self._infos.items() if i.begin is not None}
        return found | begun

    def at_word(self, word: str) -> dict[Partition, int]:
        # If the latest is unknown, the source stores nothing: both words mean the same.
        return {
            p: i.latest if word == "latest" and i.latest is not None else i.start
            for p, i in self._infos.items()
        }

    def at_time(self, millis: int, strategy: str) -> dict[Partition, int]:
        return self._found(
            self._metadata.offsets_at(millis, list(self._infos)), strategy
        )

    def at_times(
        self, key: str, times: Mapping[str, Mapping[int, int]], strategy: str
    ) -> dict[Partition, int]:
        by_time: dict[int, list[Partition]] = {}
        for partition, millis in self._exactly(key, times).items():
            by_time.setdefault(millis, []).append(partition)
        found: dict[Partition, int | None] = {}
        for millis, partitions in by_time.items():
            found.update(self._metadata.offsets_at(millis, partitions))
        return self._found(found, strategy)

    def at_offsets(
        self, key: str, offsets: str | Mapping[str, Mapping[int, int]]
    ) -> dict[Partition, int]:
        if isinstance(offsets, str):
            return self.at_word(offsets)
        earliest, latest = self.at_word("earliest"), self.at_word("latest")
        words = {_EARLIEST: earliest, _LATEST: latest}
        given = self._exactly(key, offsets)
        return {p: words[o][p] if o < 0 else o for p, o in given.items()}

    def _found(
        self, found: Mapping[Partition, int | None], strategy: str
    ) -> dict[Partition, int]:
        late = sorted(p for p, offset in found.items() if offset is None)
        if late and strategy == "error":
            msg = f"no message of {late[0]} is at or after the given time"
            raise ConfigError(
                msg,
                stream=self._config.name,
                partition=late[0],
                remedy="set startingOffsetsByTimestampStrategy=latest to start at "
                "latest",
            )
        latest = self.at_word("latest")
        return {p: latest[p] if o is None else o for p, o in found.items()}

    def _exactly(
        self, key: str, given: Mapping[str, Mapping[int, int]]
    ) -> dict[Partition, int]:
        """Return the map by partition; it must have exactly the existing partitions."""
        flat = {
            Partition(topic, number): value
            for topic, by_id in given.items()
            for number, value in by_id.items()
        }
        origin = self._config.settings[key].origin
        problems = [
            Problem(key, f"has {p}, which this stream does not have", origin)
            for p in sorted(set(flat) - set(self._infos))
        ]
        problems += [
            Problem(key, f"lacks {p}, which this stream has", origin)
            for p in sorted(set(self._infos) - set(flat))
        ]
        if problems:
            msg = f"{key} does not match the partitions"
            raise ConfigError(msg, problems=problems, stream=self._config.name)
        return flat
