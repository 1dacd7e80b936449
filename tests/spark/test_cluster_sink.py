"""Spark as it is run: a master and workers in processes of their own; and Connect."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.proving.java import quick_options
from tests.proving.ports import free_port
from tests.spark import scenario

from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    from collections.abc import Iterator


ONCE = {"rows": 1000, "distinct": 1000}
REPOSITORY = Path(__file__).parents[2]


class Cluster:
    """A standalone master and its workers, on loopback, out of PySpark's package."""

    def __init__(self, folder: Path) -> None:
        found = find_spec("pyspark")
        assert found is not None
        assert found.origin is not None
        self.home = Path(found.origin).parent
        self.folder = folder
        self.address = f"spark://127.0.0.1:{free_port()}"
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        port = self.address.rsplit(":", 1)[1]
        self.master = self._start("master", "--port", port)
        deadline = time.monotonic() + 60
        while not listens(int(port)):
            assert time.monotonic() < deadline, "the master does not listen"
            time.sleep(0.05)

    def complete(self) -> None:
        """Have two workers, also after one was killed."""
        # Speculation wants another host, and these are two.
        for host in ("127.0.0.1", "127.0.0.2"):
            worker = self.workers.get(host)
            if worker is None or worker.poll() is not None:
                work = ("--work-dir", str(self.folder / "work"), self.address)
                more = ("--cores", "1", "--memory", "700m", *work)
                self.workers[host] = self._start("worker", *more, host=host)

    def close(self) -> None:
        for process in (*self.workers.values(), self.master):
            process.kill()
            process.wait(120)

    def _start(
        self, role: str, *arguments: str, host: str = "127.0.0.1"
    ) -> subprocess.Popen[bytes]:
        kind = f"org.apache.spark.deploy.{role}.{role.capitalize()}"
        place = ("--host", host, "--webui-port", "0")
        environment = {
            **os.environ,
            "SPARK_HOME": str(self.home),
            "SPARK_LOCAL_IP": host,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": quick_options(),
        }
        with (self.folder / f"{role}.log").open("ab") as log:
            return subprocess.Popen(
                [self.home / "bin" / "spark-class", kind, *place, *arguments],
                env=environment,
                stdout=log,
                stderr=log,
            )


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def one_cluster(
    tmp_path_factory: pytest.TempPathFactory, own_spark: None
) -> Iterator[Cluster]:
    started = Cluster(tmp_path_factory.mktemp("cluster"))
    yield started
    started.close()


@pytest.fixture
def cluster(one_cluster: Cluster) -> Cluster:
    one_cluster.complete()
    return one_cluster


class Driver:
    """A process with a scenario of ours."""

    def __init__(
        self, master: str, folder: Path, name: str, **environment: str
    ) -> None:
        self._log = folder / "driver.log"
        paths = [str(REPOSITORY), str(REPOSITORY / "src")]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.scenario", master, folder, name],
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(paths),
                    "SPARK_LOCAL_IP": "127.0.0.1",
                    **environment,
                },
                cwd=folder,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._process.stdout is not None
        self.lines = self._process.stdout

    def result(self) -> dict[str, Any]:
        """What it found."""
        with self._process:
            lines = self.lines.read().splitlines()
            self._process.wait(120)
        assert self._process.returncode == 0, self._log.read_text()[-6000:]
        found: dict[str, Any] = json.loads(lines[-1])
        return found


@pytest.mark.long("starts a cluster of Spark")
def test_a_cluster_reads_writes_and_streams(cluster: Cluster, tmp_path: Path) -> None:
    found = Driver(cluster.address, tmp_path, "everything").result()
    assert found == {"sum": 1999000, "rows": 2000, "distinct": 2000}


@pytest.mark.long("workers of a cluster are killed")
def test_tasks_whose_workers_are_killed_are_run_again_and_count_once(
    cluster: Cluster, tmp_path: Path
) -> None:
    found = Driver(cluster.address, tmp_path, "killed_workers").result()
    assert found == {"left": [], **ONCE}


@pytest.mark.long("waits for the speculation of a cluster")
def test_of_two_attempts_at_once_one_counts(cluster: Cluster, tmp_path: Path) -> None:
    found = Driver(cluster.address, tmp_path, "slow_task").result()
    assert found == {"attempts": 2, **ONCE}


@pytest.mark.repeated(
    "an executor is killed, which a killed worker takes along",
    shown_by="tests/spark/test_cluster_sink.py::test_a_worker_that_is_killed_loses_nothing",
)
def test_an_executor_that_is_killed_loses_nothing(
    cluster: Cluster, tmp_path: Path
) -> None:
    found = Driver(cluster.address, tmp_path, "killed_executor").result()
    assert found == {"killed": True, **ONCE}


@pytest.mark.long("a worker of a cluster is killed")
def test_a_worker_that_is_killed_loses_nothing(
    cluster: Cluster, tmp_path: Path
) -> None:
    driver = Driver(cluster.address, tmp_path, "lost_worker")
    assert "kill a worker" in driver.lines.readline()
    cluster.workers["127.0.0.2"].kill()
    assert driver.result() == ONCE


@pytest.mark.long("one more driver of a cluster")
def test_an_executor_without_the_package_names_the_remedy(
    cluster: Cluster, tmp_path: Path
) -> None:
    # Driver and executors get one name for their Python; this one is bare in the
    # executors of a standalone cluster alone.
    bare = tmp_path / "python"
    site = cluster.home.parent  # found, but its .pth files are not followed
    bare.write_text(
        "#!/bin/sh\n"
        f'if [ -z "$SPARK_EXECUTOR_DIRS" ]; then exec "{sys.executable}" "$@"; fi\n'
        f'PYTHONPATH="{site}" exec "{sys.executable}" -S "$@"\n'
    )
    bare.chmod(0o755)
    names = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
    environment = dict.fromkeys(names, str(bare))
    driver = Driver(cluster.address, tmp_path, "without_package", **environment)
    message = driver.result()["message"]
    assert "cannot import streamfactory" in message
    assert "pip install 'streamfactory[spark]'" in message


@pytest.mark.long("one more driver of a cluster, which packs its packages")
def test_a_pipeline_ships_its_packages_to_executors_that_have_none(
    cluster: Cluster, tmp_path: Path
) -> None:
    streams = tmp_path / "streams"
    streams.mkdir()
    for topic in ("in", "out"):
        document = {"name": topic, "properties": scenario.options(tmp_path, topic)}
        (streams / f"{topic}.json").write_text(json.dumps(document))
    with open_sink(scenario.options(tmp_path, "in")) as sink:
        sink.put(pa.table({"id": range(1000)}))
    pipeline = tmp_path / "orders.toml"
    pipeline.write_text(
        'checkpoint = "kept"\n[source]\nstream = "in"\nstartingOffsets = "earliest"\n'
        '[[sinks]]\nstream = "out"\n'
    )
    # In executors it finds what Spark tells it to find, and nothing that is installed.
    bare, began = tmp_path / "python", tmp_path / "began"
    base = Path(sys.executable).resolve()
    bare.write_text(
        "#!/bin/sh\n"
        f'if [ -z "$SPARK_EXECUTOR_DIRS" ]; then exec "{sys.executable}" "$@"; fi\n'
        f'touch "{began}"\nexec "{base}" -S "$@"\n'
    )
    bare.chmod(0o755)
    command = [sys.executable, "-m", "streamfactory", "run", "orders.toml", "--once"]
    command += ["--master", cluster.address, "--spark", "executor.memory=512m"]
    done = subprocess.run(
        [*command, "--ship"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=tmp_path,
        env={
            **os.environ,
            "STREAMFACTORY_STREAMS": str(streams),
            "PYSPARK_PYTHON": str(bare),
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert began.exists()
    assert scenario.found(tmp_path, "out") == ONCE


@pytest.mark.long("starts a server of Spark Connect")
@pytest.mark.usefixtures("own_spark")
def test_connect_reads_writes_and_streams(tmp_path: Path) -> None:
    if find_spec("grpc") is None:
        pytest.fail("Spark Connect needs pip install 'pyspark[connect]'")
    found = Driver("connect", tmp_path, "everything").result()
    assert found == {"sum": 1999000, "rows": 2000, "distinct": 2000}
