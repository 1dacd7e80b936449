"""A command line in this process, and backends that only these tests have."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.proving.commands import Outcome, command_of

from streamfactory.arrowlog import Epoch
from streamfactory.backends.memory import store
from streamfactory.spi import Summary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def streamfactory(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Runs a command line in this process."""
    return command_of(capsys)


def path_with(folder: Path) -> str:
    """The path of Python's modules, with a folder before it."""
    return os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))


@pytest.fixture
def program(tmp_path: Path) -> Callable[..., Outcome]:
    """Runs a command line in a process of its own."""

    def command(*arguments: str, **environment: str) -> Outcome:
        done = subprocess.run(
            [sys.executable, "-m", "streamfactory", *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": path_with(tmp_path), **environment},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    return command


@pytest.fixture
def clicks(tmp_path: Path) -> Iterator[Path]:
    """A stream in a file, and its topic with three rows in one of two partitions."""
    name = f"clicks-{tmp_path.name}"
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("at", "date32")])
    log = store().create(name, schema, partitions=2)
    rows = pa.RecordBatch.from_pydict({"id": [1, 2, 3], "at": [None] * 3}, schema)
    stage = log.stage("attempt")
    stage.append(1, rows)
    log.commit(Epoch("writer", 0, [stage.seal()], Summary()))
    path = tmp_path / "clicks.toml"
    path.write_text(
        f"[properties]\nstreamType = 'memory'\n'stream.memory.topic.name' = '{name}'\n"
    )
    yield path
    store().delete(name)


STRANGER = """
import os, time
from streamfactory.spi import *

class Provider(MetadataProvider):
    def fetch_partitions(self, topics, known):
        return {partitions}

class Factory(ConsumerFactory):
    CLAIMS = Claims({claims})
    def __init__(self, config):
        super().__init__(config)
        {constructor}
    def create_partition_level_consumer(self, client_id, partition, fields=None):
        raise NotImplementedError
    def create_metadata_provider(self, client_id):
        return Provider()

BACKEND = Backend(
    name="stranger", doc="For tests.", spi_level=1, consumer_factory=Factory,
    options=(Option("password", "To get in.", secret=True),),
)
"""


@pytest.fixture
def stranger(tmp_path: Path) -> Callable[..., Path]:
    """Writes a stream whose type is a module beside it, for a class path."""

    def write(
        partitions: str = "[PartitionInfo(Partition(topics[0], 0), 0, 5)]",
        claims: str = "",
        constructor: str = "pass",
        **properties: str,
    ) -> Path:
        module = STRANGER.format(
            partitions=partitions, claims=claims, constructor=constructor
        )
        (tmp_path / "stranger.py").write_text(module)
        given = {
            "streamType": "stranger",
            "stream.stranger.consumer.factory.class.name": "stranger:BACKEND",
            "stream.stranger.topic.name": "t",
            **properties,
        }
        path = tmp_path / "strange.json"
        path.write_text(json.dumps({"properties": given}))
        return path

    return write
