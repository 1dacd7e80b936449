"""Resolves positions in arguments of commands: offsets, times, words, positions."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import TYPE_CHECKING, Any

from streamfactory.spi import (
    MisuseError,
    OffsetOutOfRange,
    Partition,
    PartitionVanished,
    Position,
    TopicNotFound,
)
from streamfactory.wiring.reading.losses import recreated, was_recreated
from streamfactory.wiring.reading.starts import Start, starting_offsets

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from streamfactory.spi import PartitionInfo, StreamConfig
    from streamfactory.wiring.reading.metadata import Metadata

Mark = int | Start
"""An offset, or what `Start` has."""
Marks = Mark | Mapping[int, Mark]
"""One mark for all partitions, or marks by partition number."""


def offsets_of(
    config: StreamConfig,
    metadata: Metadata,
    infos: Sequence[PartitionInfo],
    marks: Marks,
) -> dict[Partition, int]:
    """Return the offset of each partition at a mark.

    A time after the last message resolves to the latest offset, a partition that is
    missing in a position to its earliest.

    Args:
        config: Configuration of the stream.
        metadata: Looks up times.
        infos: The current partitions.
        marks: The marks.

    Returns:
        An entry per partition; if marks are given by partition, for those only.

    Raises:
        OffsetOutOfRange: data_loss; an offset is beyond the latest.
        IncarnationChanged: data_loss; a position is of an earlier incarnation.
        PartitionVanished: data_loss; a position has a partition that no longer exists.
        PositionRefused: permanent; a position is of another topic.
        TopicNotFound: permanent; a partition does not exist.
    """
    there = {info.partition.id: info for info in infos}
    chosen: list[tuple[Sequence[PartitionInfo], Any]]
    if isinstance(marks, Mapping) and not isinstance(marks, Position):
        refuse_unknown(config, infos, marks)
        chosen = [([there[number]], mark) for number, mark in marks.items()]
    else:
        chosen = [(list(infos), marks)]
    found: dict[Partition, int] = {}
    for some, mark in chosen:
        number = None if mark is True or mark is False else mark
        if isinstance(number, Integral):
            found |= {info.partition: int(number) for info in some}
            continue
        if isinstance(mark, Position):
            _refuse_foreign(config, metadata, infos, mark)
        found |= starting_offsets(
            config, metadata, some, start=mark, default="earliest"
        )
    for info in infos:
        _refuse_beyond(config, info, found.get(info.partition))
    return found


def refuse_unknown(
    config: StreamConfig, infos: Sequence[PartitionInfo], wanted: Mapping[int, object]
) -> None:
    """Refuse unknown partition numbers.

    Raises:
        TopicNotFound: permanent.
    """
    there = sorted(info.partition.id for info in infos)
    keys: Iterable[Any] = wanted
    for number in keys:
        if not isinstance(number, Integral):
            msg = f"{number!r} is no number of a partition"
            raise MisuseError(msg, remedy="use whole numbers as keys")
    unknown = sorted(set(wanted) - set(there))
    if unknown:
        have = f"{there[0]} to {there[-1]}" if len(there) > 1 else str(there)[1:-1]
        msg = f"partition {unknown[0]} does not exist; available are {have or 'none'}"
        raise TopicNotFound(msg, stream=config.name)


def _refuse_foreign(
    config: StreamConfig,
    metadata: Metadata,
    infos: Sequence[PartitionInfo],
    position: Position,
) -> None:
    """Refuse a position that has none of these partitions."""
    metadata.check_position(position)
    there = {info.partition: info for info in infos}
    for partition, offset in position.items():
        if partition not in there:
            msg = "the position has a partition that no longer exists"
            raise PartitionVanished(
                msg, stream=config.name, partition=partition, offset=offset
            )
        expected = position.incarnations.get(partition)
        found = there[partition].incarnation
        if was_recreated(expected, found):
            error = recreated(partition, expected, found, offset)
            error.remedy = "use earliest, latest or a time instead"
            raise error.at(stream=config.name)


def _refuse_beyond(
    config: StreamConfig, info: PartitionInfo, offset: int | None
) -> None:
    if offset is None or info.latest is None or offset <= info.latest:
        return
    msg = f"offset {offset} is beyond the latest offset {info.latest}"
    raise OffsetOutOfRange(
        msg,
        earliest=info.earliest,
        latest=info.latest,
        stream=config.name,
        partition=info.partition,
        offset=offset,
        remedy="use latest for the end",
    )
