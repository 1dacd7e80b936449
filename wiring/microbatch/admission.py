"""How much one micro-batch takes: at most, at least, and how long it waits for that."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamfactory.spi import Partition, StreamConfig
    from streamfactory.wiring.core.clock import Clock


class Admission:
    """The limits of one query, as Spark-Kafka words them.

    Args:
        config: Has ``maxOffsetsPerTrigger``, ``minOffsetsPerTrigger`` and
            ``maxTriggerDelay``.
        clock: Time.
    """

    def __init__(self, config: StreamConfig, clock: Clock) -> None:
        self._most: int | None = config.get("maxOffsetsPerTrigger")
        self._least: int | None = config.get("minOffsetsPerTrigger")
        self._patience: float = config["maxTriggerDelay"] / 1000
        self._clock = clock
        self._since = clock.now()
        """When the last batch was taken, by this driver."""

    @property
    def limits(self) -> bool:
        """Whether there is any."""
        return self._most is not None or self._least is not None

    def waits(self, waiting: int) -> bool:
        """Whether so many offsets are too few yet."""
        if self._least is None or waiting >= self._least:
            return False
        return self._clock.now() - self._since < self._patience

    def took(self) -> None:
        """Take note that a batch was made."""
        self._since = self._clock.now()

    def share(self, backlog: Mapping[Partition, int]) -> dict[Partition, int]:
        """How many offsets of each partition's backlog a batch takes.

        In proportion to the backlog, rounded down, and at least one of each that has
        any: so the sum may be a little over the limit.
        """
        total = sum(backlog.values())
        if self._most is None or total <= self._most:
            return dict(backlog)
        return {
            partition: min(size, max(1, self._most * size // total)) if size else 0
            for partition, size in backlog.items()
        }
