"""A topic in a folder, and planners of it: what a driver holds, without Spark."""

from __future__ import annotations

import uuid
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from streamfactory.arrowlog import Epoch
from streamfactory.arrowlog.disk import DiskLogStore, LocalStorage, Settings
from streamfactory.spi import Summary
from streamfactory.wiring.config.configure import configure
from streamfactory.wiring.config.definition import from_mapping
from streamfactory.wiring.microbatch import Planner
from streamfactory.wiring.plugins.manager import default_manager
from streamfactory.wiring.reading.source import Source
from streamfactory.wiring.testing.faults import SimulatedClock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SCHEMA = pa.schema([pa.field("id", pa.int64())])


class Topic:
    """A topic called ``t``, and whoever plans batches of it."""

    def __init__(self, root: Path, stack: ExitStack) -> None:
        self.root = root
        self.clock = SimulatedClock()
        self._stack = stack
        self._store = DiskLogStore(LocalStorage(root, fsync="never"), Settings())
        stack.callback(self._store.close)

    def create(self, partitions: int = 1) -> None:
        self._store.create("t", SCHEMA, partitions)

    def delete(self) -> None:
        self._store.delete("t")

    def grow(self, partitions: int) -> None:
        self._store.open("t").grow(partitions)

    def truncate(self, before: int, partition: int = 0) -> None:
        self._store.open("t").truncate({partition: before})

    def write(self, rows: int, partition: int = 0) -> None:
        log = self._store.open("t")
        stage = log.stage(uuid.uuid4().hex)
        stage.append(partition, pa.record_batch([range(rows)], schema=SCHEMA))
        log.commit(Epoch(None, 0, [stage.seal()], Summary(rows)))

    def source(self, **options: str) -> Source:
        properties = {
            "streamType": "file",
            "stream.file.path": str(self.root),
            "stream.file.topic.name": "t",
            **options,
        }
        configured = configure(from_mapping(properties), default_manager(), use="spark")
        source = Source(configured, clock=self.clock)
        self._stack.callback(source.close)
        return source

    def planner(self, **options: str) -> Planner:
        """Another driver: it knows nothing of the one before."""
        return Planner(self.source(**options))


@pytest.fixture
def topic(tmp_path: Path) -> Iterator[Topic]:
    with ExitStack() as stack:
        yield Topic(tmp_path / "topics", stack)
