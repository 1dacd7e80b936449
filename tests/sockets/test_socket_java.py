"""Arrow Java at the other end."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pyarrow as pa
import pytest
from tests.proving.maven import java_peer
from tests.sockets.peers import PATIENCE, Background, opened, sink_of, until

from streamfactory.spi import Finished

SOURCE = Path(__file__).with_name("java") / "ArrowPeer.java"
ROWS, BATCHES = 5_000, 20
NUMBERS = list(range(ROWS * BATCHES))
TEXTS = [None if n % 3 == 0 else f"é{n}" for n in NUMBERS]

pytestmark = pytest.mark.network


@pytest.fixture(scope="module")
def arrow_java(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command that runs the peer."""
    return java_peer(SOURCE, tmp_path_factory.mktemp("classes"))


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


def test_java_detects_that_a_writer_failed(
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
