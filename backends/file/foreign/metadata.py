"""Metadata provider for files of other programs."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from streamfactory.spi import (
    MetadataProvider,
    Partition,
    PartitionInfo,
    PartitionState,
    SchemaUnknown,
    StreamTimeout,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    import pyarrow as pa

    from streamfactory.backends.file.foreign.layout import Layout


class ForeignMetadata(MetadataProvider):
    """Returns bounds and schema of the one partition of a layout.

    Args:
        make: Creates the layout.
        path: Path for error messages.
        declared: Whether the configuration declares a schema.
    """

    def __init__(
        self, make: Callable[[], Layout], path: str, *, declared: bool
    ) -> None:
        self._make = make
        self._path = path
        self._declared = declared
        self._layouts: dict[int, tuple[threading.Lock, Layout]] = {}
        """By process id: layouts inherited by a fork are not used."""

    def fetch_partitions(
        self, topics: Sequence[str], known: Collection[Partition]
    ) -> Sequence[PartitionInfo]:
        with self._refreshed() as layout:
            state = PartitionState.ENDED if layout.ended else PartitionState.ACTIVE
            return [
                PartitionInfo(
                    Partition(topic, 0),
                    layout.earliest,
                    layout.latest,
                    state,
                    layout.incarnation,
                )
                for topic in topics
            ]

    def fetch_schema(self, topic: str) -> pa.Schema:
        with self._refreshed() as layout:
            if layout.schema is not None:
                return layout.schema
        if self._declared:
            msg = f"{self._path!r} contains no file with a schema yet"
            raise SchemaUnknown(msg)
        msg = f"{self._path!r} contains no file with a schema yet"
        remedy = "wait for its writer, or declare the option `schema`"
        raise StreamTimeout(msg, remedy=remedy)

    def close(self) -> None:
        for process, (lock, layout) in self._layouts.items():
            if process == os.getpid():
                with lock:
                    layout.close()

    @contextmanager
    def _refreshed(self) -> Iterator[Layout]:
        fresh = (threading.Lock(), self._make())  # a layout opens files lazily
        lock, layout = self._layouts.setdefault(os.getpid(), fresh)
        with lock:
            layout.refresh()
            layout.discover(eager=True)
            yield layout
