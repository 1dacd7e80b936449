"""Limits of a micro-batch: maximum and minimum offsets, maximum delay, and a rate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamfactory.spi import Partition, StreamConfig
    from streamfactory.wiring.core.clock import Clock
    from streamfactory.wiring.core.throttle import Throttle

_EMPTY: Final = 10.0
"""Minimum seconds between the last batch and one without messages. It moves the
position on: a source may need that to release what it holds."""


class Admission:
    """The limits of one query, as in Spark's Kafka source.

    Args:
        config: With ``maxOffsetsPerTrigger``, ``minOffsetsPerTrigger`` and
            ``maxTriggerDelay``.
        clock: The clock.
        throttle: Limits offsets per second; None without a limit.
    """

    def __init__(
        self, config: StreamConfig, clock: Clock, throttle: Throttle | None = None
    ) -> None:
        self._max_offsets: int | None = config.get("maxOffsetsPerTrigger")
        self._min_offsets: int | None = config.get("minOffsetsPerTrigger")
        self._patience: float = config["maxTriggerDelay"] / 1000
        self._clock = clock
        self._since = clock.now()
        """Time of this driver's last batch."""
        self._throttle = throttle
        self._looked = clock.now()
        self._elapsed = 1.0
        """Seconds between the last two looks, at least one: a rate allows so many
        seconds' offsets at once, less those that are not paid off."""

    def look(self) -> None:
        """Record a look for new offsets, with which each trigger begins."""
        now = self._clock.now()
        self._elapsed, self._looked = max(1.0, now - self._looked), now

    @property
    def rated(self) -> bool:
        """Whether a rate applies now."""
        return self._throttle is not None and self._throttle.rate.rows is not None

    @property
    def _allowed(self) -> float:
        """Seconds whose offsets the rate allows now; negative after too many."""
        delay = 0.0 if self._throttle is None else self._throttle.delay()
        return self._elapsed - delay

    @property
    def limits(self) -> bool:
        """Whether any limit is set."""
        return self._max_offsets is not None or self._min_offsets is not None

    def waits(self, waiting: int) -> bool:
        """Whether to wait: for more offsets than are available, or for the rate."""
        # Triggers are not exactly periodic: one that comes early is not skipped.
        if self._allowed < self._elapsed / 2:
            return True
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
        total, most = sum(backlog.values()), self._most()
        shares = dict(backlog)
        if most is not None and total > most:
            shares = {
                partition: min(size, max(1, most * size // total)) if size else 0
                for partition, size in backlog.items()
            }
        if self._throttle is not None:
            self._throttle.took(sum(shares.values()), 0)
        return shares

    def _most(self) -> int | None:
        rate = None if self._throttle is None else self._throttle.rate.rows
        if rate is None:
            return self._max_offsets
        allowed = max(1, int(rate * self._allowed))
        return allowed if self._max_offsets is None else min(allowed, self._max_offsets)
