"""The files of a stream's rows, for engines that read files themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from streamfactory.arrowlog import LogConsumerFactory, message_schema
from streamfactory.arrowlog.values import LogFile
from streamfactory.spi import Unsupported
from streamfactory.wiring.reading.losses import recreated, was_recreated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfactory.wiring.microbatch.ranges import Range
    from streamfactory.wiring.reading.source import Source

__all__ = ["LogFile", "Stored"]

_REMEDY = 'read it with format("streamfactory")'


@final
class Stored:
    """The topic in which a stream is stored.

    Args:
        source: The stream; remains the caller's.

    Raises:
        Unsupported: misuse; the stream is not stored in a log in a folder, or its rows
            are undecoded messages.
        TopicNotFound: permanent.
    """

    def __init__(self, source: Source) -> None:
        config = source.config
        if not isinstance(source.factory, LogConsumerFactory):
            msg = f"streams of type {config.type} are not stored in Parquet files"
            raise Unsupported(msg, stream=config.name, remedy=_REMEDY)
        kind = str(config.get("format", "log"))
        if kind != "log":
            msg = f"files of other programs (format={kind}) cannot be scanned"
            raise Unsupported(msg, stream=config.name, remedy=_REMEDY)
        path = str(config.get("path", ""))
        if "://" in path:
            msg = "files are read from a folder that all processes reach by the same "
            msg += f"path, not from {path}"
            raise Unsupported(msg, stream=config.name, remedy=_REMEDY)
        self._log = source.factory.store().open(config.topic)
        self.schema = self._log.schema
        if self.schema.equals(message_schema()):
            msg = f"topic {config.topic!r} has undecoded messages, which need a decoder"
            raise Unsupported(msg, stream=config.name, remedy=_REMEDY)

    def files(self, ranges: Sequence[Range]) -> list[LogFile]:
        """Return the files with the rows of ranges, by range and offset.

        Raises:
            IncarnationChanged: data_loss; the topic was recreated since the ranges
                were planned.
            See `Log.files`.
        """
        found: list[LogFile] = []
        incarnation = self._log.incarnation
        for one in ranges:
            if was_recreated(one.incarnation, incarnation):
                raise recreated(one.partition, one.incarnation, incarnation, one.start)
            found += self._log.files(one.partition.id, one.start, one.end)
        return found
