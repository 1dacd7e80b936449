"""Reads the partitions of a stream in turn, for `open`, `copy` and `tail`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamfactory.spi import PartitionState, Position
from streamfactory.wiring.reading.rotation import Rotation
from streamfactory.wiring.reading.starts import plan_read

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamfactory.spi import Partition
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
    """Start reading without commits. The caller closes the result.

    Args:
        source: The stream.
        start: Has precedence over all start options; None applies these.
        default: ``earliest`` or ``latest``, if no start option is set.
        follow: Continue after the latest is reached, with new partitions too.
        back: Start so many offsets before the latest of each partition instead.
        mine: Selects the partitions to read.

    Raises:
        PositionRefused: permanent; the start is of another stream.
        StreamError: Raised by the source when its partitions are fetched.
    """
    config = source.config
    planned = plan_read(
        config,
        source.metadata,
        start=start,
        default=default,
        follow=follow,
        back=back,
    )
    return Rotation(
        source,
        [info for info in planned.infos if mine(info.partition)],
        planned.starts,
        ends=planned.ends,
        incarnations=planned.incarnations,
        mine=mine,
        refresh=config["metadata.refresh.millis"] / 1000,
        clock=source.clock,
        skipped=start.skipped if isinstance(start, Position) else (),
    )


def all_ended(source: Source, rotation: Rotation) -> bool:
    """Whether every partition has ended, including new ones."""
    if not rotation.ends or set(rotation.position) - set(rotation.ends):
        return False
    return all(
        info.partition in rotation.ends
        for info in source.metadata.partitions()
        if info.state is not PartitionState.VANISHED
    )
