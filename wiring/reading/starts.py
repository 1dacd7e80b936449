"""Where a reader starts and a batch ends: Spark-Kafka's vocabulary, for every backend.

A new start is looked for in this order: by timestamp, by timestamps for partitions, by
offsets, by Pinot's reset, by default. A checkpoint beats them all; that is the
caller's business.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from streamfactory.spi import (
    ConfigError,
    MisuseError,
    Partition,
    PartitionState,
    Position,
    Problem,
)
from streamfactory.wiring.options.types import Ago

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streamfactory.spi import PartitionInfo, StreamConfig
    from streamfactory.wiring.reading.metadata import Metadata

_EARLIEST: Final = -2
_LATEST: Final = -1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_WORDS: Final = {"smallest": "earliest", "largest": "latest"}

Start = str | datetime | Position
"""``earliest``, ``latest``, a time, or a position."""


def starting_offsets(
    config: StreamConfig,
    metadata: Metadata,
    infos: Sequence[PartitionInfo],
    *,
    start: Start | None,
    default: str,
) -> dict[Partition, int]:
    """The first offset to read of each partition.

    Args:
        config: Has the start options.
        metadata: Is asked when a start is given by time.
        infos: The partitions as they are now.
        start: What the caller said, over all options.
        default: ``earliest`` or ``latest``, where nothing says.

    Raises:
        ConfigError: config; offsets are given for other partitions than there are, or
            no message is as late as a given time.
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
    reset = config.get("consumer.prop.auto.offset.reset", default)
    if isinstance(reset, str):
        return resolver.at_word(reset)
    now = int(datetime.now(UTC).timestamp() * 1000)
    millis = max(0, now - reset.millis) if isinstance(reset, Ago) else reset
    # As in Pinot: where nothing is that late, the latest.
    return resolver.at_time(millis, "latest")


def ending_offsets(
    config: StreamConfig, metadata: Metadata, infos: Sequence[PartitionInfo]
) -> dict[Partition, int | None]:
    """The first offset a batch does not read; None where only the stream's end ends it.

    Raises:
        ConfigError: config; as `starting_offsets`. A time that nothing reaches ends at
            latest.
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


class _Resolver:
    def __init__(
        self, config: StreamConfig, metadata: Metadata, infos: Sequence[PartitionInfo]
    ) -> None:
        self._config = config
        self._metadata = metadata
        self._infos = {info.partition: info for info in infos}

    def given(self, start: Start) -> dict[Partition, int]:
        if isinstance(start, Position):
            # A partition that the position does not know is new: from its beginning.
            return {p: start.get(p, i.earliest) for p, i in self._infos.items()}
        if isinstance(start, datetime):
            if start.tzinfo is None:
                msg = f"the start {start} has no time zone"
                raise MisuseError(msg, remedy="give it one: datetime(..., tzinfo=UTC)")
            # Down to whole milliseconds, as stored times are: rather one row early
            # than one missing.
            millis = (start - _EPOCH) // timedelta(milliseconds=1)
            return self.at_time(millis, "latest")
        word = _WORDS.get(start.lower(), start.lower())
        if word not in ("earliest", "latest"):
            msg = f"the start {start!r} is neither earliest nor latest"
            raise MisuseError(msg, remedy="give one of these, a datetime or a Position")
        return self.at_word(word)

    def at_word(self, word: str) -> dict[Partition, int]:
        # Where the latest cannot be known, nothing is held either: both words agree.
        return {
            p: i.latest if word == "latest" and i.latest is not None else i.earliest
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
                remedy="startingOffsetsByTimestampStrategy=latest starts at latest",
            )
        latest = self.at_word("latest")
        return {p: latest[p] if o is None else o for p, o in found.items()}

    def _exactly(
        self, key: str, given: Mapping[str, Mapping[int, int]]
    ) -> dict[Partition, int]:
        """The map by partition: it has to name exactly those that there are."""
        flat = {
            Partition(topic, number): value
            for topic, by_id in given.items()
            for number, value in by_id.items()
        }
        origin = self._config.settings[key].origin
        problems = [
            Problem(key, f"names {p}, which this stream has not", origin)
            for p in sorted(set(flat) - set(self._infos))
        ]
        problems += [
            Problem(key, f"does not name {p}, which this stream has", origin)
            for p in sorted(set(self._infos) - set(flat))
        ]
        if problems:
            msg = f"{key} does not match the partitions"
            raise ConfigError(msg, problems=problems, stream=self._config.name)
        return flat
