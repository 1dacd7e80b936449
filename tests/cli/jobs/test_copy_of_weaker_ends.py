"""`copy` between ends of unequal strength: no more is promised than held."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pytest

from streamfactory.conformance.specimens import durable, forgetful
from streamfactory.spi import (
    Backend,
    CheckpointFailed,
    CheckpointStore,
    Claims,
    ConfigError,
    ConnectionFailed,
    EpochVisibility,
    GuaranteeRefused,
    StreamCommitter,
    hookimpl,
)
from streamfactory.transfer.copies import open_copy
from streamfactory.wiring.plugins.manager import PluginManager
from streamfactory.wiring.streams.checkpoints import FileCheckpointStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.cli.jobs.conftest import Memory

    from streamfactory.spi import Checkpoint
    from streamfactory.transfer.copying import Copied


class UnrememberingFactory(durable.DurableProducerFactory):
    """Whoever writes, nobody is remembered."""

    CLAIMS: ClassVar = Claims(
        durable=True, shared=True, epoch_visibility=EpochVisibility.WHOLE
    )

    def create_committer(self, writer_id: str | None) -> StreamCommitter:
        return super().create_committer(None)


@hookimpl
def streamfactory_backend() -> Backend:
    known = durable.streamfactory_backend()
    return Backend(
        name="unremembering",
        doc="A sink without memory.",
        spi_level=1,
        producer_factory=UnrememberingFactory,
        translate=known.translate,
        options=known.options,
    )


class FailingStore(CheckpointStore):
    """Fails at one of its saves."""

    def __init__(self, folder: Path, fail_at: int) -> None:
        self._inner = FileCheckpointStore(folder)
        self._left = fail_at

    def load(self, group: str) -> Mapping[str, Checkpoint]:
        return self._inner.load(group)

    def save(self, group: str, instance: str, checkpoint: Checkpoint) -> None:
        self._left -= 1
        if not self._left:
            msg = "the disk is full"
            raise CheckpointFailed(msg)
        self._inner.save(group, instance, checkpoint)


@pytest.fixture
def plugins() -> PluginManager:
    manager = PluginManager()
    manager.register(sys.modules[__name__])
    manager.register(forgetful)
    return manager


@pytest.fixture
def numbers(memory: Memory) -> dict[str, str]:
    """Forty numbers in memory."""
    memory.create("from", pa.schema([("number", pa.int64())]))
    memory.write("from", pa.record_batch({"number": list(range(40))}))
    return {
        "streamType": "memory",
        "stream.memory.store": memory.name,
        "stream.memory.topic.name": "from",
        "batch.rows": "5",
    }


@pytest.fixture
def sink(tmp_path: Path) -> tuple[dict[str, str], durable.DurableHarness]:
    harness = durable.DurableHarness(tmp_path)
    harness.create(1)
    path = harness.properties()["stream.durable.path"]
    return {
        "streamType": "unremembering",
        "stream.unremembering.topic.name": "numbers",
        "stream.unremembering.path": path,
        "realtime.segment.flush.threshold.rows": "10",
    }, harness


def copied(source: Any, sink: Any, **how: Any) -> Copied:
    with open_copy(source, sink, **how) as copy:
        return copy.run(threading.Event())


def test_checkpoint_makes_up_for_a_sink_without_memory(
    numbers: dict[str, str],
    sink: tuple[dict[str, str], durable.DurableHarness],
    plugins: PluginManager,
    tmp_path: Path,
) -> None:
    properties, harness = sink
    store = FileCheckpointStore(tmp_path / "checkpoints")
    with open_copy(numbers, properties, checkpoints=store, plugins=plugins) as copy:
        assert str(copy.guarantee).startswith("at-least-once: a repeated epoch")
        assert copy.run(threading.Event()).rows == 40
    again = FileCheckpointStore(tmp_path / "checkpoints")
    assert copied(numbers, properties, checkpoints=again, plugins=plugins).rows == 0
    assert harness.visible() == {0: [*range(40)]}


def test_rows_since_the_last_checkpoint_come_again(
    numbers: dict[str, str],
    sink: tuple[dict[str, str], durable.DurableHarness],
    plugins: PluginManager,
    tmp_path: Path,
) -> None:
    properties, harness = sink
    failing = FailingStore(tmp_path / "checkpoints", fail_at=3)  # the first pins
    with pytest.raises(CheckpointFailed):
        copied(numbers, properties, checkpoints=failing, plugins=plugins)
    store = FileCheckpointStore(tmp_path / "checkpoints")
    copied(numbers, properties, checkpoints=store, plugins=plugins)
    assert harness.visible() == {0: [*range(20), *range(10, 40)]}


def test_without_a_checkpoint_all_is_copied_again_and_it_is_said(
    numbers: dict[str, str],
    sink: tuple[dict[str, str], durable.DurableHarness],
    plugins: PluginManager,
) -> None:
    properties, harness = sink
    with open_copy(numbers, properties, plugins=plugins) as copy:
        assert copy.guarantee.reasons[-1] == (
            "the position is not stored, so a new run copies all rows again"
        )
        copy.run(threading.Event())
    copied(numbers, properties, plugins=plugins)
    assert harness.visible() == {0: [*range(40), *range(40)]}
    wanted = {"guarantee": "exactly-once"}
    with pytest.raises(GuaranteeRefused):
        open_copy(numbers, properties | wanted, plugins=plugins)


# --- a source that forgets ------------------------------------------------------------


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[forgetful.ForgetfulHarness]:
    harness = forgetful.ForgetfulHarness(tmp_path)
    harness.create(1)
    yield harness
    harness.close()


def into(memory: Memory) -> dict[str, str]:
    return {
        "streamType": "memory",
        "stream.memory.store": memory.name,
        "stream.memory.topic.name": "to",
    }


@pytest.mark.parametrize("follow", [False, True])
def test_source_that_ends_ends_the_copy(
    follow: bool,
    queue: forgetful.ForgetfulHarness,
    memory: Memory,
    plugins: PluginManager,
) -> None:
    queue.write(0, [1, 2, 3])
    with open_copy(queue.properties(), into(memory), plugins=plugins) as copy:
        assert str(copy.guarantee).startswith("at-most-once: the source cannot be read")
        done = copy.run(threading.Event(), follow=follow)
    assert done.complete
    assert memory.rows("to") == [[{"number": 1}, {"number": 2}, {"number": 3}]]


def test_rows_before_a_torn_end_are_kept(
    queue: forgetful.ForgetfulHarness, memory: Memory, plugins: PluginManager
) -> None:
    queue.write(0, [1, 2, 3], end=False)
    with open_copy(queue.properties(), into(memory), plugins=plugins) as copy:
        losses: list[int] = []

        def tell(rows: int) -> None:
            if rows == 3 and not losses:
                losses.append(rows)
                queue.server.tear()

        with pytest.raises(ConnectionFailed) as caught:
            copy.run(threading.Event(), follow=True, on_progress=tell)
    assert caught.value.what == "the stream broke off: the connection broke off"
    assert memory.rows("to") == [[{"number": 1}, {"number": 2}, {"number": 3}]]


def test_nothing_is_skipped_where_it_cannot_be_recorded_or_read_again(
    numbers: dict[str, str],
    sink: tuple[dict[str, str], durable.DurableHarness],
    plugins: PluginManager,
    tmp_path: Path,
) -> None:
    late = {"fresh.within.millis": "10m"}
    store = FileCheckpointStore(tmp_path / "checkpoints")
    with pytest.raises(ConfigError, match="'unremembering' stores no positions"):
        open_copy(numbers | late, sink[0], checkpoints=store, plugins=plugins)
    harness = forgetful.ForgetfulHarness(tmp_path)
    harness.create(1)
    into = numbers | {"stream.memory.topic.name": "to"}
    with pytest.raises(ConfigError, match="'forgetful' cannot be read again"):
        open_copy({**harness.properties(), **late}, into, plugins=plugins)
