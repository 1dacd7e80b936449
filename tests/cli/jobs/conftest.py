"""Streams in memory, in a specimen's file and in a log, and commands that use them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pytest
from tests.proving.commands import Outcome
from tests.proving.tiers import sample

from streamfactory.arrowlog import Epoch
from streamfactory.backends.memory import store
from streamfactory.conformance.specimens.durable import DurableHarness
from streamfactory.spi import Summary
from streamfactory.wiring.streams.stream import open_stream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from streamfactory.arrowlog import Log

VICTIM = Path(__file__).with_name("victim.py")


@dataclass
class Memory:
    """Topics of one store of this process."""

    folder: Path
    name: str = field(default_factory=lambda: uuid.uuid4().hex)

    def stream(self, topic: str, **options: str) -> Path:
        """The file of a stream; dots in the names of options are written ``__``."""
        given = {key.replace("__", "."): value for key, value in options.items()}
        properties = {
            "streamType": "memory",
            "stream.memory.store": self.name,
            "stream.memory.topic.name": topic,
            "metadata.refresh.millis": "20",
            **given,
        }
        path = self.folder / f"{topic}.json"
        path.write_text(json.dumps({"name": topic, "properties": properties}))
        return path

    def create(self, topic: str, schema: pa.Schema, partitions: int = 1) -> Log:
        return store(self.name).create(topic, schema, partitions)

    def log(self, topic: str) -> Log:
        return store(self.name).open(topic)

    def write(self, topic: str, rows: pa.RecordBatch, partition: int = 0) -> None:
        log = self.log(topic)
        stage = log.stage(uuid.uuid4().hex)
        stage.append(partition, rows)
        log.commit(Epoch(None, 0, [stage.seal()], Summary()))

    def rows(self, topic: str) -> list[list[dict[str, Any]]]:
        """Of each partition, as the log has them."""
        log = self.log(topic)
        found: list[list[dict[str, Any]]] = []
        for partition in log.bounds():
            found.append([])
            at = partition.earliest
            while at < partition.latest:
                part = log.read(partition.id, at, max_rows=10**6, max_bytes=2**40).rows
                assert part is not None
                found[-1] += part.to_pylist()
                at += part.num_rows
        return found


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    place = Memory(tmp_path)
    yield place
    for name in store(place.name).names():
        store(place.name).delete(name)


class Place(Protocol):
    """Where durable streams of numbers are, for commands in processes of their own."""

    def stream(self, topic: str, partitions: int = 1) -> Path:
        """A stream with one column `number`, not created yet where it can be later."""

    def write(self, topic: str, numbers: Sequence[int], partition: int = 0) -> None: ...

    def numbers(self, topic: str) -> list[list[int]]:
        """Of each partition."""


class DurablePlace:
    """The kit's specimen, which tests name by a class path."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._harnesses: dict[str, DurableHarness] = {}
        (folder / "durable_stream.py").write_text(
            "from streamfactory.conformance.specimens.durable import *\n"
            "from streamfactory.conformance.specimens import durable\n"
            "BACKEND = durable.streamfactory_backend()\n"
        )

    def stream(self, topic: str, partitions: int = 1) -> Path:
        harness = self._harnesses[topic] = DurableHarness(self._folder)
        harness.create(partitions)
        properties = {
            **harness.properties(),
            "stream.durable.consumer.factory.class.name": "durable_stream:BACKEND",
        }
        path = self._folder / f"{topic}.json"
        path.write_text(json.dumps({"name": topic, "properties": properties}))
        return path

    def write(self, topic: str, numbers: Sequence[int], partition: int = 0) -> None:
        self._harnesses[topic].write(partition, numbers)

    def numbers(self, topic: str) -> list[list[int]]:
        visible = self._harnesses[topic].visible()
        return [list(visible[number]) for number in sorted(visible)]


class FilePlace:
    """Topics of the log on disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def stream(self, topic: str, partitions: int = 1) -> Path:
        path = self._folder / f"{topic}.json"
        properties = {**self._properties(topic, partitions)}
        path.write_text(json.dumps({"name": topic, "properties": properties}))
        return path

    def write(self, topic: str, numbers: Sequence[int], partition: int = 0) -> None:
        from streamfactory.wiring.streams.opening import open_sink

        known = json.loads((self._folder / f"{topic}.json").read_text())
        rows = pa.record_batch(
            {"number": list(numbers), "_partition": [partition] * len(numbers)}
        )
        with open_sink(known["properties"]) as sink:
            sink.put(rows)

    def numbers(self, topic: str) -> list[list[int]]:
        known = json.loads((self._folder / f"{topic}.json").read_text())
        found: dict[int, list[int]] = {}
        with open_stream(known["properties"]) as stream:
            for partition in stream.position:
                found[partition.id] = []
            for batch in stream:
                values = found[batch.partition.id]
                values += batch.rows.column("number").to_pylist()
        return [found[number] for number in sorted(found)]

    def _properties(self, topic: str, partitions: int) -> dict[str, str]:
        return {
            "streamType": "file",
            "stream.file.path": str(self._folder / "topics"),
            "stream.file.topic.name": topic,
            "stream.file.partitions": str(partitions),
        }


@pytest.fixture(
    params=sample(
        [FilePlace, DurablePlace],
        "the same commands on one more type",
        shown_by="tests/cli/jobs/test_killing.py::"
        "test_publish_killed_at_a_point_continues",
    ),
    ids=["file", "durable"],
)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    made: Place = request.param(tmp_path)
    return made


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a command line in a process of its own; killed in the end."""
    children: list[subprocess.Popen[str]] = []

    def launch(
        *arguments: object, crash: dict[str, Any] | None = None
    ) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [
                sys.executable,
                str(VICTIM),
                json.dumps(crash or {}),
                *(str(argument) for argument in arguments),
                "--allow-class-paths",
            ],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        children.append(child)
        return child

    yield launch
    for child in children:
        child.kill()
        child.wait(120)
        for pipe in (child.stdin, child.stdout, child.stderr):
            assert pipe is not None
            pipe.close()


@pytest.fixture
def program(start: Callable[..., subprocess.Popen[str]]) -> Callable[..., Outcome]:
    """Runs a command line in a process of its own, to its end."""

    def command(
        *arguments: object, crash: dict[str, Any] | None = None, text: str = ""
    ) -> Outcome:
        child = start(*arguments, crash=crash)
        out, err = child.communicate(text, timeout=300)
        return Outcome(child.returncode, out, err)

    return command
