"""One Spark and one object store for all tests of a process, and topics to read."""

from __future__ import annotations

import sys
import uuid
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.proving.java import java_or_skip, quick_options
from tests.proving.shared import this_run

from streamfactory.arrowlog.disk import DiskLogStore, LocalStorage, Settings
from streamfactory.spark import prepare_environment, register
from streamfactory.wiring.streams.opening import open_sink
from streamfactory.wiring.streams.stream import open_stream

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession
    from tests.objects.server import ObjectServer

    from streamfactory.arrowlog import Log


SECRET = "STREAMFACTORY_TEST_SECRET"
"""An environment variable of the session's processes, with a secret in it."""

LOGGING = """
rootLogger.level = off
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %p %c %m%n%ex
"""


@pytest.fixture(scope="session")
def catalogue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of named streams of the session's driver."""
    folder = tmp_path_factory.mktemp("streams")
    with pytest.MonkeyPatch.context() as environment:
        # The driver's planners inherit what its Java process was started with.
        environment.setenv("STREAMFACTORY_STREAMS", str(folder))
        environment.setenv(SECRET, "c0ntinental-drift")
        environment.setenv("STREAMFACTORY_ALLOW_CLASS_PATHS", "true")
        yield folder


@pytest.fixture(scope="session")
def spark_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the session logs, once a test has set a level."""
    return tmp_path_factory.mktemp("log") / "spark.log"


@pytest.fixture(scope="session")
def spark(
    tmp_path_factory: pytest.TempPathFactory, catalogue: Path, spark_log: Path
) -> Iterator[SparkSession]:
    """A local session with two cores.

    The source is registered: PySpark's search for it is not repeated in the life of a
    Java process, so that one failure of it would fail all tests.
    """
    assert catalogue.is_dir()
    java_or_skip()
    prepare_environment(local=True)
    folder = tmp_path_factory.mktemp("spark")
    logging = folder / "log4j2.properties"
    logging.write_text(LOGGING.format(spark_log), encoding="utf-8")
    with warnings.catch_warnings():
        # PySpark imports pandas 3, which it warns of.
        warnings.simplefilter("ignore")
        from pyspark.sql import SparkSession

        # It would lack the environment and the options of this session.
        assert not java_runs(), "a test has started Java in this process"
        session = (
            SparkSession.builder.master("local[2]")
            .appName("streamfactory-tests")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
            .config("spark.local.dir", str(folder / "local"))
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.host", "127.0.0.1")
            .config(
                "spark.driver.extraJavaOptions",
                f"{quick_options()} -Dlog4j2.configurationFile={logging}",
            )
            .getOrCreate()
        )
    register(session)
    yield session
    session.stop()


def java_runs() -> bool:
    """Whether PySpark has started a Java in this process."""
    pyspark = sys.modules.get("pyspark")
    return pyspark is not None and pyspark.SparkContext._gateway is not None


@pytest.fixture(scope="session")
def own_spark() -> None:
    """For tests that start a Spark of their own: skips them where there is no Java."""
    java_or_skip()


@pytest.fixture(scope="session")
def object_server(tmp_path_factory: pytest.TempPathFactory) -> ObjectServer:
    """A real object store; all workers of a run share it."""
    from tests.objects.stage import serve

    return serve(this_run(tmp_path_factory))


class Topic:
    """A topic of ``file``, written and read without Spark."""

    def __init__(self, root: Path, name: str, **options: str) -> None:
        self.root = root
        self.name = name
        self.options: dict[str, str] = {
            "streamType": "file",
            "stream.file.path": str(root / "topics"),
            "stream.file.topic.name": name,
            "stream.file.fsync": "never",
            **options,
        }
        self._epoch = 0

    def write(self, **columns: list[Any]) -> None:
        """One epoch of rows; a column ``_partition`` says where they go."""
        self.put(pa.table(columns))

    def put(self, rows: pa.Table) -> None:
        """One epoch of these rows."""
        with open_sink(self.options) as sink:
            sink.put(rows, writer_id="test", epoch=self._epoch)
        self._epoch += 1

    def grow(self, partitions: int) -> None:
        with self._log() as log:
            log.grow(partitions)

    def truncate(self, before: dict[int, int]) -> None:
        with self._log() as log:
            log.truncate(before)

    def delete(self) -> None:
        store = self._store()
        store.delete(self.name)
        store.close()
        self._epoch = 0

    @contextmanager
    def _log(self) -> Iterator[Log]:
        store = self._store()
        yield store.open(self.name)
        store.close()

    def _store(self) -> DiskLogStore:
        return DiskLogStore(
            LocalStorage(self.root / "topics", fsync="never"), Settings()
        )

    def rows(self) -> list[dict[str, Any]]:
        """All that a reader sees."""
        with open_stream(self.options) as stream:
            found: list[dict[str, Any]] = stream.to_reader().read_all().to_pylist()
        return found

    def column(self, name: str) -> list[Any]:
        """One column of it, sorted."""
        return sorted(row[name] for row in self.rows())

    def another(self, name: str | None = None, **options: str) -> Topic:
        """Another topic of the same place."""
        return Topic(self.root, name or f"t{uuid.uuid4().hex[:8]}", **options)
