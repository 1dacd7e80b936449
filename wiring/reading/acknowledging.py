"""Acknowledges committed positions to a source (rule R12)."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from streamfactory.spi import StreamError
from streamfactory.wiring.core.guard import log

if TYPE_CHECKING:
    from streamfactory.spi import Position
    from streamfactory.wiring.reading.source import Source


@final
class Acknowledger:
    """Acknowledges committed positions to one source. One thread at a time.

    The caller passes a position only after a durable commit stored it. A failure is a
    warning: positions are cumulative, so the next call covers what this one did not.

    Args:
        source: The stream that was read.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._last: Position | None = None

    def acknowledge(self, position: Position | None) -> None:
        """Acknowledge a position, unless it was the last one acknowledged.

        Args:
            position: The committed next offset of each partition; None if nothing is
                committed yet.
        """
        if not position or position == self._last:
            return
        try:
            with self._source.guard.border():
                self._source.factory.acknowledge(position)
        except StreamError as error:
            log.warning(
                "stream %r: acknowledging failed; the next commit repeats it: %s",
                self._source.config.name,
                error,
            )
        else:
            self._last = position
