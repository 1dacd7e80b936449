"""Where the scenarios run: one entry in `ENVIRONMENTS` adds a backend to all."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pytest

from streamfactory.arrowlog import Epoch
from streamfactory.arrowlog.disk import DiskLogStore, LocalStorage, Settings
from streamfactory.backends.memory import store
from streamfactory.spi import Partition, Summary
from streamfactory.wiring.config.configure import configure
from streamfactory.wiring.config.definition import from_mapping
from streamfactory.wiring.plugins.manager import PluginManager
from streamfactory.wiring.reading.source import Source
from streamfactory.wiring.streams.stream import open_stream

# `tests.specimens` is imported from the root, wherever pytest was started.
sys.path.insert(0, str(Path(__file__).parents[2]))

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfactory.wiring.reading.reader import Reader
    from streamfactory.wiring.streams.stream import Stream

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False)])


class Broker(Protocol):
    """What a backend's environment can do, without our own reading code."""

    kind: str

    def create(self, topic: str, partitions: int) -> None:
        """Make a topic of typed rows (`SCHEMA`)."""

    def delete(self, topic: str) -> None: ...

    def grow(self, topic: str, partitions: int) -> None:
        """Have so many partitions."""

    def write(self, topic: str, partition: int, ids: list[int]) -> None: ...

    def truncate(self, topic: str, partition: int, before: int) -> None:
        """Let go of what is before an offset, as retention does."""

    def properties(self) -> dict[str, str]:
        """How the broker is reached: the type, and what it needs but a topic."""

    def close(self) -> None:
        """Give everything back."""


class MemoryBroker:
    """A store of the memory backend."""

    kind = "memory"

    def __init__(self) -> None:
        self._name = uuid.uuid4().hex
        self._store = store(self._name)

    def create(self, topic: str, partitions: int) -> None:
        self._store.create(topic, SCHEMA, partitions)

    def delete(self, topic: str) -> None:
        self._store.delete(topic)

    def grow(self, topic: str, partitions: int) -> None:
        self._store.open(topic).grow(partitions)

    def write(self, topic: str, partition: int, ids: list[int]) -> None:
        log = self._store.open(topic)
        stage = log.stage(uuid.uuid4().hex)
        rows = pa.record_batch([pa.array(ids, pa.int64())], schema=SCHEMA)
        stage.append(partition, rows)
        log.commit(Epoch(None, 0, [stage.seal()], Summary()))

    def truncate(self, topic: str, partition: int, before: int) -> None:
        self._store.open(topic).truncate({partition: before})

    def properties(self) -> dict[str, str]:
        return {"streamType": "memory", "stream.memory.store": self._name}

    def close(self) -> None:
        """What it holds goes with the process."""


class FileBroker:
    """A folder of the file backend."""

    kind = "file"

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="scenario-")
        self._store = DiskLogStore(
            LocalStorage(Path(self._folder), fsync="never"), Settings()
        )

    def create(self, topic: str, partitions: int) -> None:
        self._store.create(topic, SCHEMA, partitions)

    def delete(self, topic: str) -> None:
        self._store.delete(topic)

    def grow(self, topic: str, partitions: int) -> None:
        self._store.open(topic).grow(partitions)

    def write(self, topic: str, partition: int, ids: list[int]) -> None:
        log = self._store.open(topic)
        stage = log.stage(uuid.uuid4().hex)
        rows = pa.record_batch([pa.array(ids, pa.int64())], schema=SCHEMA)
        stage.append(partition, rows)
        log.commit(Epoch(None, 0, [stage.seal()], Summary()))

    def truncate(self, topic: str, partition: int, before: int) -> None:
        self._store.open(topic).truncate({partition: before})

    def properties(self) -> dict[str, str]:
        return {"streamType": "file", "stream.file.path": self._folder}

    def close(self) -> None:
        self._store.close()
        shutil.rmtree(self._folder)


ENVIRONMENTS: dict[str, type[Broker]] = {"memory": MemoryBroker, "file": FileBroker}


class Environment:
    """A topic called ``clicks`` on some broker, and whoever reads it."""

    topic = "clicks"

    def __init__(self, broker: Broker, stack: ExitStack) -> None:
        self.broker = broker
        self._stack = stack

    def create(self, partitions: int = 1, topic: str = topic) -> None:
        self.broker.create(topic, partitions)

    def write(self, *ids: int, partition: int = 0, topic: str = topic) -> None:
        self.broker.write(topic, partition, list(ids))

    def truncate(self, before: int, partition: int = 0) -> None:
        self.broker.truncate(self.topic, partition, before)

    def recreate(self, partitions: int = 1) -> None:
        self.broker.delete(self.topic)
        self.broker.create(self.topic, partitions)

    def grow(self, partitions: int) -> None:
        self.broker.grow(self.topic, partitions)

    def delete(self, topic: str) -> None:
        self.broker.delete(topic)

    def offsets(self, by_partition: dict[str, int]) -> str:
        return json.dumps({self.topic: by_partition})

    def properties(self, **options: Any) -> dict[str, str]:
        """Of the stream; dots in option names are written ``__``."""
        given = {key.replace("__", "."): value for key, value in options.items()}
        mine = {"metadata.refresh.millis": "10"}
        if not {"subscribe", "subscribePattern", "assign"} & given.keys():
            mine[f"stream.{self.broker.kind}.topic.name"] = self.topic
        return self.broker.properties() | mine | given

    def open(self, *, options: dict[str, str] | None = None, **how: Any) -> Stream:
        """Open the stream; it is closed in the end."""
        opened = open_stream(self.properties(**(options or {})), **how)
        return self._stack.enter_context(opened)

    def reader(self, partition: int = 0, **options: Any) -> Reader:
        """A reader of one partition; it is closed in the end."""
        definition = from_mapping(self.properties(**options))
        source = Source(configure(definition, PluginManager(), use="read"))
        self._stack.callback(source.close)
        reader = source.reader(Partition(self.topic, partition))
        self._stack.callback(reader.close)
        return reader


@pytest.fixture(params=list(ENVIRONMENTS))
def stream(request: pytest.FixtureRequest) -> Iterator[Environment]:
    """Every backend in turn."""
    with ExitStack() as stack:
        broker = ENVIRONMENTS[request.param]()
        stack.callback(broker.close)
        yield Environment(broker, stack)
