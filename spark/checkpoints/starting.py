"""Comparison of streams with checkpoints, and the start options of a reset."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Final

from streamfactory.spi import (
    MisuseError,
    PartitionState,
    PositionRefused,
)
from streamfactory.wiring.options.types import Ago
from streamfactory.wiring.reading.losses import find_loss

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from streamfactory.spark.checkpoints.reading import Batch
    from streamfactory.spark.checkpoints.resolving import Reset
    from streamfactory.spi import PartitionInfo, Position, StreamConfig
    from streamfactory.wiring.reading.source import Source

_STRONGER: Final = ("startingTimestamp", "startingOffsetsByTimestamp")
"""Start options of a stream that take precedence over ``startingOffsets``."""


def identity_of(config: StreamConfig) -> str:
    """Identity of a stream in a record: its type and topics.

    Not its address, which may change; recreated topics are detected by incarnation.
    """
    if "subscribePattern" in config:
        return f"{config.type} /{config['subscribePattern']}/"
    if "topic.name" in config:
        return f"{config.type} {config.topic}"
    word = "subscribe" if "subscribe" in config else "assign"
    return f"{config.type} {','.join(sorted(config[word]))}"


def same_stream(before: str, after: str) -> bool:
    """Whether both have the same type and a common topic."""
    kind, _, topics = before.partition(" ")
    other_kind, _, others = after.partition(" ")
    if kind != other_kind:
        return False
    return topics == others or bool(set(topics.split(",")) & set(others.split(",")))


def check_streams(where: str, batch: Batch, sources: Sequence[Source]) -> None:
    """Refuse a batch of other streams.

    Raises:
        PositionRefused: permanent.
    """
    if len(batch.sources) != len(sources):
        msg = f"{where}: batch {batch.number} has {len(batch.sources)} sources, and "
        msg += f"{len(sources)} are given"
        raise PositionRefused(
            msg, remedy="give one for each, in the order of the query"
        )
    for index, (found, source) in enumerate(zip(batch.sources, sources, strict=True)):
        what = f"{where}: source {index if found.name is None else found.name}"
        source.metadata.check_position(found.position, what)


def start_of_one(
    reset: Reset,
    sources: Mapping[str, Source],
    reached: Mapping[str, Position],
    pending: Mapping[str, dict[str, str]],
) -> tuple[dict[str, str], ...]:
    """The same if one source begins there, and the others continue.

    Args:
        reset: Names the source.
        sources: All streams by id; a stream that is read again is ``ID#2``.
        reached: The next position of each of them; empty before the first batch.
        pending: Start options of each of them, of a generation without a batch.

    Raises:
        MisuseError: misuse; no source has the id; or as `start_options`.
        DataLossError: data_loss; a stream has not what its position names.
    """
    mine = {name: one for name, one in sources.items() if _id(name) == reset.source}
    if not mine:
        known = ", ".join(dict.fromkeys(map(_id, sources)))
        msg = f"--reset names the source {reset.source!r}; there are {known}"
        raise MisuseError(msg)
    found = dict(zip(mine, start_options(reset, mine), strict=True))
    others = {name: sources[name] for name in reached if name not in mine}
    _check_own_options(others.values())
    for name, source in others.items():
        found[name] = {"startingOffsets": complete_offsets(reached[name], source)}
    return tuple(found.get(name, pending.get(name, {})) for name in sources)


def _id(name: str) -> str:
    return name.partition("#")[0]


def start_options(
    reset: Reset | None, sources: Mapping[str, Source]
) -> tuple[dict[str, str], ...]:
    """The options by which each stream begins where a reset says.

    Periods become times, and the rest of a position's stream is filled in: the same
    options mean the same place when the run that they were made for is killed.

    Raises:
        MisuseError: misuse; a stream's own options would win, or a position does not
            name what the streams have.
        DataLossError: data_loss; the stream has not what the position names.
    """
    if reset is None:
        return tuple({} for _ in sources)
    at = reset.at
    if isinstance(at, Ago):
        at = max(0, time.time_ns() // 1_000_000 - at.millis)
    if isinstance(at, int):
        for source in sources.values():
            _check_time(at, source)
        later = {"startingOffsetsByTimestampStrategy": "latest"}
        return tuple({"startingTimestamp": str(at), **later} for _ in sources)
    _check_own_options(sources.values())
    if isinstance(at, str):
        return tuple({"startingOffsets": at} for _ in sources)
    _check_named(at, sources.values())
    return tuple({"startingOffsets": complete_offsets(at, s)} for s in sources.values())


def _check_time(millis: int, source: Source) -> None:
    """Refuse a time where the stream cannot look one up."""
    partitions = [info.partition for info in source.metadata.partitions()]
    source.metadata.offsets_at(millis, partitions)


def _check_own_options(sources: Iterable[Source]) -> None:
    for source in sources:
        for key in _STRONGER:
            if key in source.config:
                msg = f"{key} of the stream would take precedence over --reset"
                remedy = f"remove {key} from the stream, or reset to a time"
                raise MisuseError(msg, stream=source.config.name, remedy=remedy)


def _check_named(position: Position, sources: Iterable[Source]) -> None:
    """Refuse a position that names too much, or leaves a stream out."""
    topics = {partition.topic for partition in position}
    read: set[str] = set()
    for source in sources:
        found = {topic for topic in topics if source.metadata.covers(topic)}
        if not found:
            msg = "--reset names no offset of this stream"
            raise MisuseError(msg, stream=source.config.name, remedy="name them all")
        read |= found
    unread = topics - read
    if unread:
        msg = f"--reset names {min(unread)!r}, which no stream of the pipeline reads"
        raise MisuseError(msg)


def complete_offsets(position: Position, source: Source) -> str:
    """``startingOffsets`` of one stream: all its partitions, as Spark wants it."""
    covers = source.metadata.covers
    mine = position.only({p for p in position if covers(p.topic)})
    by_topic: dict[str, dict[str, int]] = {}
    for info in source.metadata.partitions(known=mine):
        partition = info.partition
        # A partition that is not in the position is new: start at earliest.
        offset = mine.get(partition, info.start)
        if partition in mine:
            _check_held(info, offset, mine.incarnations.get(partition), source)
        elif info.state is PartitionState.VANISHED:
            continue
        by_topic.setdefault(partition.topic, {})[str(partition.id)] = offset
    return json.dumps(by_topic, sort_keys=True, separators=(",", ":"))


def _check_held(
    info: PartitionInfo, offset: int, incarnation: str | None, source: Source
) -> None:
    found = find_loss(info, offset, incarnation)
    if found is not None:
        _, error = found
        error.remedy = "name available offsets in --reset, or a time"
        raise error.at(stream=source.config.name)
