"""Topics in memory and on disk, and commands that operate them."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.proving.commands import Outcome, command_of

from streamfactory.backends.memory import store
from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

DEADLINE = 180.0


@pytest.fixture
def topics(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Runs ``topics`` with a command line, in this process."""
    return command_of(capsys, "topics")


@dataclass
class Place:
    """Topics of one place."""

    folder: Path
    type: str
    where: dict[str, str]
    known: list[str] = field(default_factory=list)

    def properties(self, topic: str, **options: str) -> dict[str, str]:
        """Of a stream; dots in the names of options are written ``__``."""
        given = {key.replace("__", "."): value for key, value in options.items()}
        return {
            "streamType": self.type,
            f"stream.{self.type}.topic.name": topic,
            **self.where,
            **given,
        }

    def stream(self, topic: str, **options: str) -> Path:
        """The file of a stream."""
        path = self.folder / f"{topic}-{uuid.uuid4().hex[:8]}.json"
        known = {"name": topic, "properties": self.properties(topic, **options)}
        path.write_text(json.dumps(known))
        return path

    def write(
        self, topic: str, rows: dict[str, list[Any]] | pa.RecordBatch, **options: str
    ) -> None:
        """Write one epoch; its first one makes the topic."""
        batch = pa.record_batch(rows) if isinstance(rows, dict) else rows
        with open_sink(self.properties(topic, **options)) as sink:
            sink.put(batch)

    def numbers(self, topic: str, *counts: int) -> Path:
        """A topic with so many numbers in each partition, and its stream."""
        key = f"stream.{self.type}.partitions"
        for partition, count in enumerate(counts):
            rows = {"id": [*range(count)], "_partition": [partition] * count}
            schema = pa.schema([("id", pa.int64()), ("_partition", pa.int32())])
            batch = pa.RecordBatch.from_pydict(rows, schema)
            self.write(topic, batch, **{key: str(len(counts))})
        return self.stream(topic)


def memory_place(folder: Path) -> Place:
    name = uuid.uuid4().hex
    return Place(folder, "memory", {"stream.memory.store": name})


def file_place(folder: Path) -> Place:
    return Place(folder, "file", {"stream.file.path": str(folder / "topics")})


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Place]:
    place = memory_place(tmp_path)
    yield place
    clear(place)


@pytest.fixture
def disk(tmp_path: Path) -> Place:
    return file_place(tmp_path)


@pytest.fixture(params=["memory", "file"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    made = {"memory": memory_place, "file": file_place}[request.param](tmp_path)
    yield made
    clear(made)


def clear(place: Place) -> None:
    if place.type == "memory":
        held = store(place.where["stream.memory.store"])
        for name in held.names():
            held.delete(name)


@pytest.fixture
def terminal(tmp_path: Path) -> Callable[..., Outcome]:
    """Runs ``topics`` at a terminal, and types an answer when it asks."""

    def command(
        *arguments: object,
        answer: str,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> Outcome:
        mine, theirs = pty.openpty()
        child = subprocess.Popen(
            [sys.executable, "-m", "streamfactory", "topics", *map(str, arguments)],
            cwd=tmp_path,
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=theirs,
            text=True,
        )
        os.close(theirs)
        try:
            seen = _read_until(mine, "[y/N]: ")
            meanwhile()
            os.write(mine, f"{answer}\n".encode())
            out, _ = child.communicate(timeout=DEADLINE)
            seen += _rest(mine)
        finally:
            child.kill()
            child.wait(120)
            os.close(mine)
        return Outcome(child.returncode, out, seen)

    return command


def _read_until(descriptor: int, text: str) -> str:
    seen, deadline = "", time.monotonic() + DEADLINE
    while text not in seen:
        ready, _, _ = select.select([descriptor], [], [], deadline - time.monotonic())
        assert ready, seen
        seen += os.read(descriptor, 4096).decode()
    return seen


def _rest(descriptor: int) -> str:
    """What is left to read once nobody writes any more."""
    seen = ""
    while select.select([descriptor], [], [], 0)[0]:
        try:
            data = os.read(descriptor, 4096)
        except OSError:  # how a terminal tells that its other side is closed
            break
        if not data:
            break
        seen += data.decode()
    return seen
