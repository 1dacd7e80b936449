"""A Flight client of Arrow Java, from its published jars, that knows nothing of us."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.flight.conftest import stream
from tests.proving.maven import java_peer
from tests.proving.tiers import sample

import streamfactory
from streamfactory.backends.flight.protocol import messages as m
from streamfactory.backends.flight.protocol.codec import decode
from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from streamfactory.wiring.serving.process import ServerProcess

SOURCE = Path(__file__).with_name("java") / "FlightPeer.java"
ROWS, BATCHES = 5_000, 20
NUMBERS = list(range(ROWS * BATCHES))
TEXTS = [None if n % 3 == 0 else f"é{n}" for n in NUMBERS]

pytestmark = [
    pytest.mark.network,
    pytest.mark.long("fetches Arrow Java's jars, and starts Java for each case"),
]


@pytest.fixture(scope="module")
def arrow_java(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command that runs the peer."""
    return java_peer(SOURCE, tmp_path_factory.mktemp("classes"))


@pytest.fixture(
    scope="module",
    params=sample(
        ["memory", "path"],
        "topics on disk, which a client does not see",
        shown_by="tests/flight/test_flight_java.py::test_java_lists_flights",
    ),
)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("topics")
    place = {"memory": True} if request.param == "memory" else {"path": str(folder)}
    with streamfactory.serve(**place) as process:
        yield process


@pytest.fixture
def java(
    arrow_java: list[str], server: ServerProcess
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs the peer on the server."""
    port = server.location.rpartition(":")[2]

    def run(what: str, *words: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*arrow_java, what, port, *map(str, words)],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    return run


@pytest.fixture
def table() -> pa.Table:
    return pa.table({"n": NUMBERS, "text": TEXTS})


def put(server: ServerProcess, topic: str, table: pa.Table, partitions: str) -> None:
    options = {"stream.flight.partitions": partitions, "producer.key.columns": "n"}
    with open_sink({**stream(server, topic), **options}) as sink:
        sink.put(table, writer_id="w", epoch=0)


def test_java_lists_flights(
    java: Callable[..., subprocess.CompletedProcess[str]],
    server: ServerProcess,
    topic: str,
    table: pa.Table,
) -> None:
    put(server, topic, table, "3")
    done = java("list")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{topic} {len(NUMBERS)} 3" in done.stdout.splitlines()


def test_java_gets_all_partitions_of_a_topic(
    java: Callable[..., subprocess.CompletedProcess[str]],
    server: ServerProcess,
    topic: str,
    table: pa.Table,
) -> None:
    put(server, topic, table, "1")
    done = java("get", topic)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{len(NUMBERS)} {sum(NUMBERS)} null\n"


def test_what_java_puts_is_read_in_order_and_once(
    java: Callable[..., subprocess.CompletedProcess[str]],
    server: ServerProcess,
    topic: str,
    table: pa.Table,
) -> None:
    done = java("put", topic, BATCHES, ROWS)
    assert (done.returncode, done.stderr) == (0, "")
    received, appended = (line.encode() for line in done.stdout.splitlines())
    assert decode(received, m.Received).rows == len(NUMBERS)
    assert decode(appended, m.Appended).placed == (m.Placed(0, 0, len(NUMBERS)),)
    with streamfactory.open(stream(server, topic)) as opened:
        assert opened.to_reader().read_all().equals(table)


def test_java_is_reported_what_the_server_refuses(
    java: Callable[..., subprocess.CompletedProcess[str]],
    server: ServerProcess,
    topic: str,
) -> None:
    missing = java("get", topic)
    assert missing.returncode == 3
    assert f"topic {topic!r} does not exist" in missing.stdout
    put(server, topic, pa.table({"n": [1], "other": [1.5]}), "1")
    refused = java("put", topic, 1, 10)
    assert refused.returncode == 3
    assert "lacks columns ['other']" in refused.stdout
    with streamfactory.open(stream(server, topic)) as opened:
        assert opened.to_reader().read_all().num_rows == 1
