"""A real broker for the tests of a run, and topics of their own in it."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import sys
import uuid
from typing import TYPE_CHECKING, Final

import pytest
from native.compiling import PACKAGE, NoCompiler, compile_core
from tests.kafka.broker import Addresses, Cluster, shared_broker
from tests.kafka.jars import Unavailable
from tests.kafka.topics import Topics
from tests.proving.shared import this_run
from tests.proving.skipping import skip_or_fail
from tests.proving.tiers import sample

from streamfactory.backends.kafka import native_library
from streamfactory.compiled import core as loading

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from streamfactory.compiled.core import Core

load_core: Final = loading.load.__wrapped__
"""Before tests replace it, and without what it remembers."""
READING: Final = "TEST_KAFKA_READING"
WRITING: Final = "TEST_KAFKA_WRITING"
"""Variables that pass the chosen paths to child processes."""
BOTH: Final = sample(["off", "required"], "the same tests on the compiled path")
"""Without the compiled part, and with it."""


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Addresses:
    """The run's broker; all workers share it, or the one that KAFKA_BOOTSTRAP names."""
    try:
        return shared_broker(this_run(tmp_path_factory))
    except Unavailable as reason:
        skip_or_fail(str(reason))
        raise


@pytest.fixture(scope="session")
def native_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder from which the package ``streamfactory_native`` can be imported."""
    try:
        return compiled(tmp_path_factory.mktemp("native"))
    except NoCompiler as reason:
        skip_or_fail(str(reason))


def compiled(folder: Path) -> Path:
    """Compile the package into a folder, from which it can then be imported.

    Raises:
        NoCompiler: This machine has no Rust.
    """
    package = folder / PACKAGE.name
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("*.so"))
    compile_core(package)
    return folder


@pytest.fixture
def native(native_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Core]:
    """The compiled part is installed, here and in child processes."""
    monkeypatch.syspath_prepend(native_folder)
    monkeypatch.setenv("PYTHONPATH", str(native_folder), prepend=os.pathsep)
    forget_core()
    core = load_core()
    assert not isinstance(core, str), core
    monkeypatch.setattr(loading, "load", lambda: core)
    yield core
    forget_core()


def forget_core() -> None:
    """Have the package and its use by Kafka looked for again."""
    for name in ("streamfactory_native", "streamfactory_native._core"):
        sys.modules.pop(name, None)
    native_library.load.cache_clear()


@pytest.fixture(params=BOTH)
def each_path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The option ``native.reading`` of the streams of a test: both paths in turn."""
    if request.param == "required":
        request.getfixturevalue("native")
    monkeypatch.setenv(READING, request.param)
    return str(request.param)


@pytest.fixture(params=BOTH)
def each_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The option ``native.writing`` of the streams of a test: both ways in turn."""
    if request.param == "required":
        request.getfixturevalue("native")
    monkeypatch.setenv(WRITING, request.param)
    return str(request.param)


@pytest.fixture
def topics(kafka: Addresses) -> Topics:
    """Makes and fills topics with the client itself, without the code under test."""
    return Topics(kafka.bootstrap)


@pytest.fixture
def topic(request: pytest.FixtureRequest, topics: Topics) -> str:
    """A new topic with one partition, named after the test."""
    name = re.sub(r"\W+", "-", request.node.name)[:60]
    return topics.create(f"{name}-{uuid.uuid4().hex[:8]}")


@pytest.fixture
def secured(kafka: Addresses) -> None:
    """A broker of somebody else's has not these listeners."""
    if kafka.ssl is None:
        pytest.skip("KAFKA_BOOTSTRAP names a broker that was not started here")


@pytest.fixture
def filled(topics: Topics, topic: str) -> str:
    topics.send(topic, [b"secret matters"])
    return topic


@pytest.fixture
def properties(kafka: Addresses, topic: str) -> dict[str, str]:
    """The configuration that reads the topic undecoded."""
    return stream_of(kafka.bootstrap, topic)


def chosen_paths() -> dict[str, str]:
    """The options that `each_path` and `each_way` chose, also in child processes."""
    options = {"reading": os.environ.get(READING), "writing": os.environ.get(WRITING)}
    return {f"stream.kafka.native.{key}": path for key, path in options.items() if path}


def stream_of(bootstrap: str, topic: str) -> dict[str, str]:
    """The configuration that reads a topic undecoded, by clients that connect soon."""
    return {
        **chosen_paths(),
        "streamType": "kafka",
        "stream.kafka.topic.name": topic,
        "stream.kafka.broker.list": bootstrap,
        "stream.kafka.decoder.class.name": "raw",
        # Half of it passes between a client's first connections.
        "stream.kafka.consumer.prop.reconnect.backoff.ms": "20",
        "stream.kafka.producer.prop.reconnect.backoff.ms": "20",
    }


@pytest.fixture(scope="session")
def mortal_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A broker for tests that kill it, one after the other; see `mortal`."""
    # How soon a broker that comes again is let in.
    quick = {"broker.session.timeout.ms": "1000"}
    try:
        cluster = Cluster(tmp_path_factory.mktemp("mortal") / "kafka", 1, quick)
        cluster.start()
    except Unavailable as reason:
        skip_or_fail(str(reason))
        raise
    yield cluster
    cluster.stop()


@pytest.fixture
def mortal(mortal_cluster: Cluster) -> Cluster:
    """A broker that a test may kill; it is alive."""
    mortal_cluster.start()
    return mortal_cluster


@pytest.fixture
def cluster_factory(
    tmp_path: Path,
) -> Iterator[Callable[..., Cluster]]:
    """Starts brokers that belong to one test, which may kill them."""
    made: list[Cluster] = []
    numbers = itertools.count()

    def start(nodes: int = 1, properties: Mapping[str, str] | None = None) -> Cluster:
        try:
            cluster = Cluster(tmp_path / f"kafka-{next(numbers)}", nodes, properties)
            made.append(cluster)
            cluster.start()
        except Unavailable as reason:
            skip_or_fail(str(reason))
            raise
        return cluster

    yield start
    for cluster in made:
        cluster.stop()
