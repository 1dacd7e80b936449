"""The source, as the driver of a micro-batch query holds it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, final

from streamfactory.conformance.spark import ship
from streamfactory.wiring.microbatch import (
    Admission,
    BatchOffset,
    Planner,
    Range,
)
from streamfactory.wiring.reading.source import Source

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamfactory.spi import Partition
    from streamfactory.wiring.config.settled import Configured


class _Share(Admission):
    """Takes a part of what is waiting, at least an offset of each partition."""

    part = 1

    @property
    def limits(self) -> bool:
        """Always: a part of what is waiting."""
        return True

    def share(self, backlog: Mapping[Partition, int]) -> dict[Partition, int]:
        """Rounded up."""
        return {partition: -(-size // self.part) for partition, size in backlog.items()}


@final
class SparkSource:
    """The source as a driver holds it: text in, text out.

    Drivers and tasks share no state.
    """

    def __init__(self, configured: Configured) -> None:
        self._source = Source(ship_configured(configured))
        self._share = _Share(self._source.config, self._source.clock)
        self._planner = Planner(self._source, self._share)

    def initial_offset(self) -> str:
        """Where a new query begins, as things are now."""
        return self._planner.initial().to_text()

    def prepare_for_available_now(self) -> None:
        """From here on the end is fixed, once it is first asked for."""
        self._planner.prepare_for_available_now()

    def latest_offset(self, start: str, share: int = 1) -> str:
        """Where the next batch ends.

        Args:
            start: Where it begins.
            share: Take this part of what is waiting, at least an offset a partition.
        """
        self._share.part = share
        return self._planner.latest(BatchOffset.parse(start)).to_text()

    def partitions(self, start: str, end: str, pieces: int = 1) -> list[Range]:
        """The tasks of a batch, each range in so many pieces. Pure: calls nothing."""
        before, after = BatchOffset.parse(start), BatchOffset.parse(end)
        ranges = self._planner.ranges(before, after)
        return [part for one in ranges for part in self._planner.cut([one], pieces)]

    def commit(self, end: str) -> None:
        """Take advice: our offsets live in Spark's log, so there is nothing to do."""
        BatchOffset.parse(end)

    def close(self) -> None:
        """Close the metadata and the factory."""
        self._source.close()


def ship_configured(configured: Configured) -> Configured:
    """The configuration as it arrives in another process, its plug-ins found there."""
    return replace(configured, config=ship(configured.config))
