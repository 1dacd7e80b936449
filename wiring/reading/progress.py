"""Commits progress to the group ``progress.group``, for the source's own tools."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from streamfactory.spi import StreamError, Unsupported
from streamfactory.wiring.core.guard import log

if TYPE_CHECKING:
    from streamfactory.spi import Position
    from streamfactory.wiring.reading.source import Source


@final
class ProgressGroup:
    """Commits positions to the group ``progress.group``, if it is set.

    Nothing is read back from the group, and a failed commit is a warning. Not
    thread-safe.

    Args:
        source: The stream.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._group: str | None = source.config.get("progress.group")
        self._last: Position | None = None

    def publish(self, position: Position | None) -> None:
        """Commit a position, unless it is the last one that was committed.

        Args:
            position: Next offset of each partition; None if there is none yet.

        Raises:
            Unsupported: misuse; the stream type has no groups.
        """
        if self._group is None or not position or position == self._last:
            return
        name = self._source.config.name
        try:
            self._source.metadata.publish_position(self._group, position)
        except Unsupported as error:
            raise error.at(stream=name) from None
        except StreamError as error:
            what = "stream %r: the position was not committed to group %r: %s"
            log.warning(what, name, self._group, error)
        else:
            self._last = position
