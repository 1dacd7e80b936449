"""Arrow Java at the other end: published jars, by Maven, in the user's cache."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from tests.proving.skipping import skip_or_fail
from tests.sockets.peers import PATIENCE, Background, opened, sink_of, until

from streamfactory.spi import Finished

HERE = Path(__file__).with_name("java")
ROWS, BATCHES = 5_000, 20
NUMBERS = list(range(ROWS * BATCHES))
TEXTS = [None if n % 3 == 0 else f"é{n}" for n in NUMBERS]

pytestmark = pytest.mark.network


def cache() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root, "streamfactory", "arrow-java")


@pytest.fixture(scope="module")
def jars() -> Path:
    """The folder of the jars that the project file names; fetched once."""
    pom = HERE / "pom.xml"
    found = cache() / hashlib.sha256(pom.read_bytes()).hexdigest()[:16]
    if found.is_dir():
        return found
    maven = shutil.which("mvn")
    if maven is None:
        skip_or_fail("Maven (mvn) is not installed, and the jars are not there yet")
    assert maven is not None
    found.parent.mkdir(parents=True, exist_ok=True)
    # Another process may be at it as well: whoever comes first is right.
    with tempfile.TemporaryDirectory(dir=found.parent) as folder:
        command = [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
        command += [f"-DoutputDirectory={folder}/jars"]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=300, check=False
        )
        if done.returncode:
            skip_or_fail(f"Maven cannot fetch Arrow Java: {done.stdout[-500:]}")
        with contextlib.suppress(OSError):
            Path(folder, "jars").rename(found)
    return found


@pytest.fixture(scope="module")
def arrow_java(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command that runs the peer."""
    compiler, runner = shutil.which("javac"), shutil.which("java")
    if compiler is None or runner is None:
        skip_or_fail("Java (javac and java) is not installed")
    assert compiler is not None
    assert runner is not None
    classes = tmp_path_factory.mktemp("classes")
    path = f"{jars}/*"
    source = HERE / "ArrowPeer.java"
    subprocess.run(
        [compiler, "-encoding", "UTF-8", "-cp", path, "-d", str(classes), str(source)],
        check=True,
        timeout=300,
    )
    opens = "--add-opens=java.base/java.nio=ALL-UNNAMED"
    utf8 = ["-Dfile.encoding=UTF-8", "-Dsun.stdout.encoding=UTF-8"]
    return [runner, opens, *utf8, "-cp", f"{path}:{classes}", "ArrowPeer"]


@pytest.fixture
def table() -> pa.Table:
    return pa.table({"n": NUMBERS, "text": TEXTS})


def collect(**options: str) -> pa.Table:
    with opened(**options) as stream:
        found = pa.Table.from_batches(batch.rows for batch in stream)
        assert set(stream.ends.values()) == {Finished()}
        return found


def test_what_java_writes_is_read(
    arrow_java: list[str], port: int, address: str, table: pa.Table
) -> None:
    words = ["write", "listen", str(port), str(BATCHES), str(ROWS)]
    with subprocess.Popen([*arrow_java, *words], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"listening\n"
        assert collect(connect=address).equals(table)
        assert process.wait(PATIENCE) == 0


def test_java_may_connect_to_a_reader(
    arrow_java: list[str], port: int, address: str, table: pa.Table
) -> None:
    reading = Background(lambda: collect(listen=address))
    until(lambda: is_listening(port))
    words = ["write", "connect", str(port), str(BATCHES), str(ROWS)]
    subprocess.run([*arrow_java, *words], check=True, timeout=300)
    assert reading.result().equals(table)


def is_listening(port: int) -> bool:
    """Asked of the system: a connection of our own would take a place."""
    wanted = f":{port:04X} "
    lines = Path("/proc/net/tcp").read_text().splitlines()
    return any(line.split()[1].endswith(wanted.strip()) for line in lines[1:])


def test_what_is_written_is_read_by_java(
    arrow_java: list[str], port: int, address: str, table: pa.Table
) -> None:
    with sink_of(listen=address) as sink:
        sink.writer(table.schema).close()  # which listens
        words = ["read", "connect", str(port)]
        process = subprocess.Popen(
            [*arrow_java, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with process:
            for rows in table.to_batches(max_chunksize=ROWS):
                sink.put(rows)
            sink.end_stream(Finished())
            out, error = process.communicate(timeout=300)
    assert (process.returncode, error) == (0, "")
    assert out == f"{len(NUMBERS)} {sum(NUMBERS)} null\n"


def test_java_learns_that_a_writer_failed(
    arrow_java: list[str], port: int, address: str, table: pa.Table
) -> None:
    with sink_of(listen=address) as sink:
        writer = sink.writer(table.schema)
        words = ["read", "connect", str(port)]
        process = subprocess.Popen(
            [*arrow_java, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with process:
            writer.write(table.to_batches()[0])
            writer.abort()
            _, error = process.communicate(timeout=300)
        writer.close()
    assert process.returncode == 1
    assert "Exception" in error
