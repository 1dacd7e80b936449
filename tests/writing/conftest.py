"""A sink over memory, and a sink over an author whose every move is scripted."""

from __future__ import annotations

import threading
import uuid
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pytest

from streamfactory.backends.memory import store
from streamfactory.spi import (
    Backend,
    Claims,
    EpochVisibility,
    LastCommit,
    MessageEncoder,
    Outgoing,
    ProducerFactory,
    StreamCommitter,
    StreamWriter,
    Yields,
    hookimpl,
)
from streamfactory.spi import Decoder as DecoderDescriptor
from streamfactory.wiring.config.configure import configure
from streamfactory.wiring.config.definition import from_mapping
from streamfactory.wiring.plugins.manager import PluginManager
from streamfactory.wiring.writing.sink import Sink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from streamfactory.arrowlog import MemoryLogStore
    from streamfactory.spi import End


@pytest.fixture
def store_name() -> str:
    return uuid.uuid4().hex


@pytest.fixture
def topics(store_name: str) -> MemoryLogStore:
    return store(store_name)


@pytest.fixture
def properties(store_name: str) -> dict[str, str]:
    return {
        "streamType": "memory",
        "stream.memory.topic.name": "clicks",
        "stream.memory.store": store_name,
    }


@pytest.fixture
def sink_factory(properties: dict[str, str]) -> Iterator[Callable[..., Sink]]:
    """Makes sinks over memory; options are given by their whole keys."""
    with ExitStack() as open_sinks:

        def make(options: dict[str, str] | None = None, **more: Any) -> Sink:
            definition = from_mapping({**properties, **(options or {})})
            plugins = more.pop("plugins", None) or PluginManager()
            sink = Sink(configure(definition, plugins, use="write"), **more)
            open_sinks.callback(sink.close)
            return sink

        yield make


@pytest.fixture
def contents(topics: MemoryLogStore) -> Callable[..., dict[int, list[Any]]]:
    """Answers one column of what a topic holds, by partition."""

    def read(column: str = "n", topic: str = "clicks") -> dict[int, list[Any]]:
        log, found = topics.open(topic), {}
        for partition in log.bounds():
            values: list[Any] = []
            while (start := partition.earliest + len(values)) < partition.latest:
                part = log.read(partition.id, start, max_rows=1000, max_bytes=2**20)
                assert part.rows is not None
                values += part.rows.column(column).to_pylist()
            found[partition.id] = values
        return found

    return read


# --- the scripted author --------------------------------------------------------


CLAIMS = Claims(idempotent=True, epoch_visibility=EpochVisibility.WHOLE)


@dataclass
class Script:
    """What a scripted sink was asked, and how it behaves."""

    claims: Claims = CLAIMS
    carries: frozenset[str] = frozenset()
    schema: pa.Schema | None = None
    counts: dict[str, int] = field(default_factory=dict)
    """Partitions by topic; 1 for others."""
    end: End | None = None
    last: LastCommit | None = None
    held: LastCommit | None = None
    """What committing answers."""
    fails: dict[str, Exception] = field(default_factory=dict)
    """What a call raises, by its name."""
    blocks: bool = False
    """Whether writing waits until it is woken."""
    calls: list[str] = field(default_factory=list)
    written: list[Outgoing] = field(default_factory=list)
    committed: list[Any] = field(default_factory=list)
    writing: threading.Event = field(default_factory=threading.Event)
    woken: threading.Event = field(default_factory=threading.Event)

    def call(self, name: str) -> None:
        self.calls.append(name)
        if name in self.fails:
            raise self.fails[name]


def _backend(script: Script) -> type:  # noqa: C901 - one small class each
    class Writer(StreamWriter):
        def write(self, outgoing: Outgoing) -> None:
            script.call("write")
            if script.blocks:
                script.writing.set()
                assert script.woken.wait(120)
            script.written.append(outgoing)

        def wake(self) -> None:
            script.call("wake")
            script.woken.set()

        def commit(self) -> Any:
            script.call("commit writer")
            return {"calls": len(script.calls)}

        def abort(self) -> None:
            script.call("abort writer")

        @property
        def end(self) -> End | None:
            return script.end

        def close(self) -> None:
            script.call("close writer")

    class Committer(StreamCommitter):
        def commit(self, epoch: Any, messages: Any, source_position: Any = None) -> Any:
            script.call("commit")
            script.committed.append((epoch, messages))
            return script.held

        def abort(self, epoch: Any, messages: Any) -> None:
            script.call(f"abort {len(messages)}")

        def last(self) -> LastCommit | None:
            script.call("last")
            return script.last

        def close(self) -> None:
            script.call("close committer")

    class Factory(ProducerFactory):
        CLAIMS: ClassVar = script.claims
        CARRIES: ClassVar = script.carries

        def create_writer(self, context: Any) -> StreamWriter:
            script.call("create writer")
            return Writer()

        def create_committer(self, writer_id: Any) -> StreamCommitter:
            return Committer()

        def fetch_last_commit(self, writer_id: str) -> LastCommit | None:
            return script.last

        def fetch_partition_count(self, topic: str) -> int:
            return script.counts.get(topic, 1)

        def fetch_schema(self, topic: str) -> pa.Schema | None:
            return script.schema

        def close(self) -> None:
            script.call("close factory")

    class Plugin:
        @hookimpl
        def streamfactory_backend(self) -> Backend:
            return Backend(
                name="scripted",
                doc="Scripted.",
                spi_level=1,
                producer_factory=Factory,
                yields=Yields.EITHER,
            )

    return Plugin


class Shouting(MessageEncoder):
    """``n`` and ``name`` as text; a bang for each."""

    closed: ClassVar[int] = 0

    def encode(self, rows: pa.RecordBatch) -> pa.Array:
        self.schema = rows.schema
        texts = [f"{row['n']}:{row.get('name')}!" for row in rows.to_pylist()]
        kept = [text for text in texts if not text.startswith("-1")]
        return pa.array([text.encode() for text in kept], pa.binary())

    def close(self) -> None:
        type(self).closed += 1


class ShoutingPlugin:
    @hookimpl
    def streamfactory_decoder(self) -> DecoderDescriptor:
        return DecoderDescriptor(
            name="shouting", doc="Shouts.", spi_level=1, encoder=Shouting
        )


@pytest.fixture
def encoders() -> PluginManager:
    """Knows the encoder ``shouting``, which loses rows whose ``n`` is -1."""
    Shouting.closed = 0
    manager = PluginManager()
    manager.register(ShoutingPlugin())
    return manager


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def scripted(script: Script) -> Iterator[Callable[..., Sink]]:
    """Makes sinks over the script, as it is when the sink is made."""
    with ExitStack() as open_sinks:

        def make(options: dict[str, str] | None = None, **more: Any) -> Sink:
            plugins = PluginManager()
            plugins.register(_backend(script)())
            plugins.register(ShoutingPlugin())
            given = {
                "streamType": "scripted",
                "stream.scripted.topic.name": "clicks",
                "retry.initial.millis": "1",
                "retry.max.attempts": "2",
            }
            definition = from_mapping({**given, **(options or {})})
            sink = Sink(configure(definition, plugins, use="write"), **more)
            open_sinks.callback(sink.close)
            return sink

        yield make
