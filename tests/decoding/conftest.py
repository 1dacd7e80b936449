"""Streams of messages and of rows in memory, known by name, and a decoder of words."""

from __future__ import annotations

import json
import sys
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

# `tests.specimens` is imported from the root, wherever pytest was started.
sys.path.insert(0, str(Path(__file__).parents[2]))

from streamfactory.arrowlog import Epoch, message_schema
from streamfactory.backends.memory import store
from streamfactory.spi import Summary
from streamfactory.wiring.plugins.manager import PluginManager

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streamfactory.arrowlog import Log

HEADER = {"key": "kind", "value": b"test"}


@dataclass
class Streams:
    """A catalogue of streams in one store of this process."""

    folder: Path
    plugins: PluginManager
    name: str = field(default_factory=lambda: uuid.uuid4().hex)

    def define(self, topic: str, **options: str) -> dict[str, Any]:
        """Name a stream, like its topic; dots in option names are written ``__``."""
        given = {key.replace("__", "."): value for key, value in options.items()}
        properties = {
            "streamType": "memory",
            "stream.memory.store": self.name,
            "stream.memory.topic.name": topic,
            "metadata.refresh.millis": "20",
            **given,
        }
        text = json.dumps({"name": topic, "properties": properties})
        (self.folder / f"{topic}.json").write_text(text)
        return properties

    def messages(
        self, topic: str, *partitions: Sequence[bytes | None], keys: Sequence[Any] = ()
    ) -> None:
        """Append messages to each partition, which are made."""
        log = self._log(topic, len(partitions))
        stage = log.stage(uuid.uuid4().hex)
        for number, values in enumerate(partitions):
            given = [
                {
                    "key": keys[at] if keys else f"k{at}".encode(),
                    "value": value,
                    "headers": [HEADER],
                }
                for at, value in enumerate(values)
            ]
            batch = pa.RecordBatch.from_pylist(given, schema=message_schema())
            stage.append(number, batch)
        log.commit(Epoch(None, 0, [stage.seal()], Summary()))

    def create(self, topic: str, schema: pa.Schema, partitions: int = 1) -> Log:
        return store(self.name).create(topic, schema, partitions)

    def rows(self, topic: str) -> list[dict[str, Any]]:
        """Of all partitions, one after another."""
        log = store(self.name).open(topic)
        found: list[dict[str, Any]] = []
        for partition in log.bounds():
            at = partition.earliest
            while at < partition.latest:
                part = log.read(partition.id, at, max_rows=10**6, max_bytes=2**40).rows
                assert part is not None
                found += part.to_pylist()
                at += part.num_rows
        return found

    def _log(self, topic: str, partitions: int) -> Log:
        held = store(self.name)
        if topic in held.names():
            return held.open(topic)
        return held.create(topic, message_schema(), partitions)

    def close(self) -> None:
        for topic in store(self.name).names():
            store(self.name).delete(topic)


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch) -> PluginManager:
    """The process's own, with the decoder of words among them."""
    from tests.specimens import Dictionary

    manager = PluginManager()
    manager.register(Dictionary())
    return manager


@pytest.fixture
def streams(
    tmp_path: Path, plugins: PluginManager, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Streams]:
    monkeypatch.setenv("STREAMFACTORY_STREAMS", str(tmp_path))
    place = Streams(tmp_path, plugins)
    yield place
    place.close()
