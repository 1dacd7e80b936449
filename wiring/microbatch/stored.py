"""The files of a stream's rows, for engines that read files themselves."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, final

from streamfactory.arrowlog.values import StoredFile, StoresRows
from streamfactory.spi import Unsupported
from streamfactory.wiring.reading.losses import recreated, was_recreated

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streamfactory.wiring.microbatch.ranges import Range
    from streamfactory.wiring.reading.source import Source

__all__ = ["REMEDY", "Stored", "StoredFile"]

REMEDY = 'read it with format("streamfactory")'


@final
class Stored:
    """Where the rows of a stream are stored.

    Args:
        source: The stream; remains the caller's.

    Raises:
        Unsupported: misuse; the stream is not stored in files of a folder that other
            programs read, or its rows are undecoded messages.
        TopicNotFound: permanent.
    """

    def __init__(self, source: Source) -> None:
        config = source.config
        self._name = config.name
        with self._refusals():
            if not isinstance(source.factory, StoresRows):
                msg = f"streams of type {config.type} are not stored in Parquet files"
                raise Unsupported(msg)
            kind = str(config.get("format", "log"))
            if kind != "log":
                msg = f"files of other programs (format={kind}) cannot be scanned"
                raise Unsupported(msg)
            path = str(config.get("path", ""))
            if "://" in path:
                msg = "files are read from a folder that all processes reach by the "
                msg += f"same path, not from {path}"
                raise Unsupported(msg)
            self._rows = source.factory.stored(config.topic)
        self.schema = self._rows.schema

    def files(self, ranges: Sequence[Range]) -> list[StoredFile]:
        """Return the files with the rows of ranges, by range and offset.

        Raises:
            IncarnationChanged: data_loss; the topic was recreated since the ranges
                were planned.
            See `Log.files`.
        """
        found: list[StoredFile] = []
        incarnation = self._rows.incarnation
        for one in ranges:
            if was_recreated(one.incarnation, incarnation):
                raise recreated(one.partition, one.incarnation, incarnation, one.start)
            with self._refusals():
                found += self._rows.files(one.partition.id, one.start, one.end)
        return found

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        """Say of what is refused how it is read."""
        try:
            yield
        except Unsupported as error:
            remedy = error.remedy or REMEDY
            raise Unsupported(error.what, stream=self._name, remedy=remedy) from error
