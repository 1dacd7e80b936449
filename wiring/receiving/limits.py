"""Keeps one partition of a spool within its size and its retention."""

from __future__ import annotations

import time
from math import inf
from typing import TYPE_CHECKING, Final, final

from streamfactory.arrowlog.values import Retention
from streamfactory.spi import SpoolFull, StreamError
from streamfactory.wiring.core.guard import log as logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamfactory.arrowlog.disk import DiskLog
    from streamfactory.spi import Partition
    from streamfactory.wiring.receiving.statistics import Statistics

_LOOK: Final = 0.05
"""Seconds between checks whether a full spool has room again."""
_TURN: Final = 0.2
"""Seconds between two applications of the retention."""


@final
class PartitionLimits:
    """Releases rows of a partition, or waits for room. Not thread-safe.

    Args:
        partition: Partition of the transport.
        log: The spool's log.
        statistics: Gets what is released, and why nothing can be stored.
        full: ``block``, ``drop-oldest`` or ``fail``.
        most: Maximum bytes of the partition; None for no limit.
        retention: Retention of the spool.
        pause: Waits for some seconds, at most until nothing more is stored; returns
            whether that is so.
    """

    def __init__(
        self,
        partition: Partition,
        log: DiskLog,
        statistics: Statistics,
        full: str,
        most: int | None,
        retention: Retention,
        pause: Callable[[float], bool],
    ) -> None:
        self._partition = partition
        self._log = log
        self._statistics = statistics
        self._full = full
        self._most = most
        size = retention.size
        if full == "drop-oldest" and most is not None:
            size = most if size is None else min(size, most)
        self._retention = Retention(retention.age, retention.rows, size)
        self._pause = pause
        self._released_at = -inf

    def make_room(self, size: int) -> float:
        """Wait until a batch can be stored.

        Args:
            size: Bytes of the batch.

        Returns:
            Bytes that can be stored now. A single batch may exceed them.

        Raises:
            SpoolFull: permanent; the spool is full, and the receiver fails or ends.
        """
        if self._most is None:
            return inf
        if self._full == "drop-oldest":
            return self._most
        msg = f"the spool is full: the partition has {self._most} bytes"
        ends = self._full == "fail"
        while True:
            held = self._log.held(self._partition.id)
            if held == 0 or held + size <= self._most:
                return self._most - held
            if ends or self._pause(0.0):
                raise SpoolFull(msg, partition=self._partition)
            self._statistics.blocked(msg)
            self._pause(_LOOK)
            self._apply()

    def release(self) -> None:
        """Release rows by retention and limit; at most five times a second."""
        if time.monotonic() - self._released_at >= _TURN:
            self._apply()

    def _apply(self) -> None:
        if self._retention == Retention():
            return
        self._released_at = time.monotonic()
        try:
            before = self._earliest()
            self._log.retain(self._retention, {})
            self._statistics.released(self._earliest() - before)
        except StreamError as error:
            logger.warning("partition %s: retention: %s", self._partition, error)

    def _earliest(self) -> int:
        return self._log.bounds()[self._partition.id].earliest
