"""Limits of a micro-batch: maximum and minimum offsets, and the maximum delay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamfactory.spi import Partition, StreamConfig
    from streamfactory.wiring.core.clock import Clock

_EMPTY: Final = 10.0
"""Minimum seconds between the last batch and one without messages. It moves the
position on: a source may need that to release what it holds."""


class Admission:
    """The limits of one query, as in Spark's Kafka source.

    Args:
        config: With ``maxOffsetsPerTrigger``, ``minOffsetsPerTrigger`` and
            ``maxTriggerDelay``.
        clock: The clock.
    """

    def __init__(self, config: StreamConfig, clock: Clock) -> None:
        self._max_offsets: int | None = config.get("maxOffsetsPerTrigger")
        self._min_offsets: int | None = config.get("minOffsetsPerTrigger")
        self._patience: float = config["maxTriggerDelay"] / 1000
        self._clock = clock
        self._since = clock.now()
        """Time of this driver's last batch."""

    @property
    def limits(self) -> bool:
        """Whether any limit is set."""
        return self._max_offsets is not None or self._min_offsets is not None

    def waits(self, waiting: int) -> bool:
        """Whether to wait for more offsets than are available."""
        if self._min_offsets is None or waiting >= self._min_offsets:
            return False
        return self._clock.now() - self._since < self._patience

    def allows_empty(self) -> bool:
        """Whether a batch without messages may follow the last batch now."""
        return self._clock.now() - self._since >= _EMPTY

    def took(self) -> None:
        """Record the time of a batch."""
        self._since = self._clock.now()

    def share(self, backlog: Mapping[Partition, int]) -> dict[Partition, int]:
        """Return how many offsets of each partition's backlog a batch reads.

        In proportion to the backlog, rounded down, but at least one per partition with
        a backlog, so the sum may slightly exceed the limit.
        """
        total = sum(backlog.values())
        if self._max_offsets is None or total <= self._max_offsets:
            return dict(backlog)
        return {
            partition: min(size, max(1, self._max_offsets * size // total))
            if size
            else 0
            for partition, size in backlog.items()
        }
