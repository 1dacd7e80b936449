"""Bounds and schema of what a path holds."""

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
    """Answers for the one partition of a layout.

    Args:
        make: Makes the layout.
        path: Named in errors.
        declared: Whether the configuration declares a schema.
    """

    def __init__(
        self, make: Callable[[], Layout], path: str, *, declared: bool
    ) -> None:
        self._make = make
        self._path = path
        self._declared = declared
        self._layouts: dict[int, tuple[threading.Lock, Layout]] = {}
        """By process: what a fork inherits is left alone."""

    def fetch_partitions(
        self, topics: Sequence[str], known: Collection[Partition]
    ) -> Sequence[PartitionInfo]:
        with self._looked() as layout:
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
        with self._looked() as layout:
            if layout.schema is not None:
                return layout.schema
        if self._declared:
            msg = f"{self._path!r} has no file with a schema yet"
            raise SchemaUnknown(msg)
        msg = f"{self._path!r} has no file with a schema yet"
        remedy = "wait for its writer, or declare the option `schema`"
        raise StreamTimeout(msg, remedy=remedy)

    def close(self) -> None:
        for process, (lock, layout) in self._layouts.items():
            if process == os.getpid():
                with lock:
                    layout.close()

    @contextmanager
    def _looked(self) -> Iterator[Layout]:
        fresh = (threading.Lock(), self._make())  # which opens nothing
        lock, layout = self._layouts.setdefault(os.getpid(), fresh)
        with lock:
            layout.refresh()
            layout.discover(eager=True)
            yield layout
