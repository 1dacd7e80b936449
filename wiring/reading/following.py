"""Partitions read in turn from a chosen start: by `open`, `copy` and `tail`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamfactory.spi import (
    ConnectionFailed,
    Failed,
    PartitionState,
    Position,
)
from streamfactory.wiring.reading.rotation import Rotation
from streamfactory.wiring.reading.starts import ending_offsets, starting_offsets

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streamfactory.spi import MessageBatch, Partition, PartitionInfo
    from streamfactory.wiring.reading.source import Source
    from streamfactory.wiring.reading.starts import Start


def read_from(
    source: Source,
    *,
    start: Start | None,
    default: str,
    follow: bool,
    back: int | None = None,
    mine: Callable[[Partition], bool] = lambda _: True,
) -> Rotation:
    """Begin to read; nothing is ever committed. The caller closes it.

    Args:
        source: The stream.
        start: Over all start options; None lets them decide.
        default: ``earliest`` or ``latest``, where nothing says.
        follow: Go on when the latest is reached, new partitions included.
        back: Begin so many offsets before the latest of each partition, instead.
        mine: Which partitions are read.

    Raises:
        PositionRefused: permanent; the start is of another stream.
        StreamError: The source's, when it is asked for partitions.
    """
    config, metadata = source.config, source.metadata
    known = start if isinstance(start, Position) else Position()
    metadata.check_position(known)
    infos = metadata.partitions(known)
    if back is None:
        starts = starting_offsets(config, metadata, infos, start=start, default=default)
    else:
        starts = _before_latest(infos, back)
    return Rotation(
        source,
        [info for info in infos if mine(info.partition)],
        starts,
        ends=None if follow else ending_offsets(config, metadata, infos),
        incarnations=known.incarnations,
        mine=mine,
        refresh=config["metadata.refresh.millis"] / 1000,
        clock=source.clock,
    )


def refuse_torn(batch: MessageBatch, stream: str) -> None:
    """Raise where a partition broke off rather than ended.

    Raises:
        ConnectionFailed: transient.
    """
    if isinstance(batch.end, Failed):
        msg = f"the stream broke off: {batch.end.cause}"
        raise ConnectionFailed(
            msg, stream=stream, partition=batch.partition, offset=batch.next_offset
        )


def all_ended(source: Source, rotation: Rotation) -> bool:
    """Whether every partition has ended, those included that came meanwhile."""
    if not rotation.ends or set(rotation.position) - set(rotation.ends):
        return False
    return all(
        info.partition in rotation.ends
        for info in source.metadata.partitions()
        if info.state is not PartitionState.VANISHED
    )


def _before_latest(infos: Sequence[PartitionInfo], back: int) -> dict[Partition, int]:
    return {
        info.partition: info.earliest
        if info.latest is None
        else max(info.earliest, info.latest - back)
        for info in infos
    }
