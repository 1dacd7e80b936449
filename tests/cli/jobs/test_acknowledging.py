"""What `copy`, groups and queries acknowledge, and when (rule R12)."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest
from tests.proving.skipping import skip_or_fail

from streamfactory.backends.memory import MemoryConsumerFactory
from streamfactory.conformance.specimens import redelivering
from streamfactory.spi import (
    Backend,
    ConnectionFailed,
    Partition,
    PermanentError,
    Position,
    hookimpl,
)
from streamfactory.transfer.copies import open_copy
from streamfactory.wiring.plugins.manager import PluginManager

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cli.jobs.conftest import Memory

PARTITION_0 = Partition("numbers", 0)


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[redelivering.RedeliveringHarness]:
    harness = redelivering.RedeliveringHarness(tmp_path)
    harness.create(1)
    yield harness
    harness.close()


def plugins_with(factory: Any = redelivering.RedeliveringConsumerFactory) -> Any:
    class Plugin:
        @hookimpl
        def streamfactory_backend(self) -> Backend:
            known = redelivering.streamfactory_backend()
            return replace(known, consumer_factory=factory)

    manager = PluginManager()
    manager.register(Plugin())
    return manager


def into(folder: Path) -> dict[str, str]:
    return {
        "streamType": "file",
        "stream.file.path": str(folder / "sink"),
        "realtime.segment.flush.threshold.rows": "10",
    }


def copy_until(rows: int, source: Any, sink: Any, plugins: Any) -> None:
    stop = threading.Event()

    def tell(count: int) -> None:
        if count >= rows:
            stop.set()

    with open_copy(source, sink, plugins=plugins) as copy:
        copy.run(stop, follow=True, on_progress=tell)


def test_a_copy_acknowledges_what_the_sink_has_committed(
    queue: redelivering.RedeliveringHarness, tmp_path: Path
) -> None:
    queue.write(0, range(25))
    seen: list[int] = []

    class Watching(redelivering.RedeliveringConsumerFactory):
        def acknowledge(self, position: Position) -> None:
            seen.append(position[PARTITION_0])
            super().acknowledge(position)

    source = {**queue.properties(), "batch.rows": "5"}
    copy_until(25, source, into(tmp_path), plugins_with(Watching))
    assert seen == [10, 20, 25]
    assert queue.acknowledged() == {0: 25}


def test_nothing_is_acknowledged_for_a_commit_that_failed(
    queue: redelivering.RedeliveringHarness, tmp_path: Path, monkeypatch: Any
) -> None:
    from streamfactory.arrowlog.writing import LogCommitter

    def full(*_: Any, **__: Any) -> None:
        msg = "the disk is full"
        raise PermanentError(msg)

    monkeypatch.setattr(LogCommitter, "_commit", full)
    queue.write(0, range(25))
    with pytest.raises(PermanentError, match="full"):
        copy_until(25, queue.properties(), into(tmp_path), plugins_with())
    assert queue.acknowledged() == {0: 0}


def test_a_restart_acknowledges_what_was_committed_before(
    queue: redelivering.RedeliveringHarness,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Unreachable(redelivering.RedeliveringConsumerFactory):
        def acknowledge(self, position: Position) -> None:
            msg = "the sender is gone"
            raise ConnectionFailed(msg)

    queue.write(0, range(10))
    with caplog.at_level(logging.WARNING):
        copy_until(10, queue.properties(), into(tmp_path), plugins_with(Unreachable))
    assert "acknowledging failed; the next commit repeats it" in caplog.text
    assert queue.acknowledged() == {0: 0}
    copy_until(0, queue.properties(), into(tmp_path), plugins_with())
    assert queue.acknowledged() == {0: 10}


def test_a_sink_that_is_not_durable_acknowledges_nothing(
    queue: redelivering.RedeliveringHarness, memory: Memory
) -> None:
    sink = {
        "streamType": "memory",
        "stream.memory.store": memory.name,
        "stream.memory.topic.name": "to",
    }
    queue.write(0, range(25))
    copy_until(25, queue.properties(), sink, plugins_with())
    assert queue.acknowledged() == {0: 0}


def test_a_source_that_delivers_again_promises_at_least_once(
    queue: redelivering.RedeliveringHarness, tmp_path: Path
) -> None:
    with open_copy(queue.properties(), into(tmp_path), plugins=plugins_with()) as copy:
        assert str(copy.guarantee) == (
            "at-least-once: messages that were not acknowledged are delivered again"
        )


def test_a_query_acknowledges_the_batches_that_spark_has_committed(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    if find_spec("pyspark") is None:
        skip_or_fail("pyspark is not installed")
    import pyarrow as pa

    from streamfactory.spark.source import MicroBatchReader
    from streamfactory.spark.types import spark_schema
    from streamfactory.wiring.config.configure import configure
    from streamfactory.wiring.config.definition import from_mapping
    from streamfactory.wiring.plugins.manager import default_manager

    seen: list[int] = []

    def note(_self: Any, position: Position) -> None:
        seen.append(position[Partition("clicks", 0)])

    monkeypatch.setattr(MemoryConsumerFactory, "acknowledge", note)
    monkeypatch.setattr("streamfactory.spark.source.check_shared", lambda _: None)
    schema = pa.schema([("number", pa.int64())])
    memory.create("clicks", schema)
    memory.write("clicks", pa.record_batch({"number": list(range(7))}))
    properties = {
        "streamType": "memory",
        "stream.memory.store": memory.name,
        "stream.memory.topic.name": "clicks",
        "startingOffsets": "earliest",
    }
    made = configure(from_mapping(properties), default_manager(), use="spark")
    reader = MicroBatchReader(made.config, spark_schema(schema), None)
    start = reader.initialOffset()
    end = reader.latestOffset(start)
    assert seen == []
    reader.latestOffset(end)
    reader.commit(end)
    reader.stop()
    assert seen == [7]
