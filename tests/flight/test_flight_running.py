"""Stopping and starting a Flight server: commits are finished, topics open fast."""

from __future__ import annotations

import os
import signal
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.flight as fl
import pytest
from tests.flight.conftest import stream
from tests.objects.proxy import FaultyProxy
from tests.objects.server import OWNER
from tests.objects.stage import place, properties_at

import streamfactory
from streamfactory.arrowlog import Epoch
from streamfactory.arrowlog.disk import DiskLogStore, LocalStorage, Settings
from streamfactory.backends.flight.protocol.codec import decode, encode
from streamfactory.backends.flight.protocol.messages import (
    Commit,
    Committed,
    Fetch,
    Sealed,
    Subscribe,
)
from streamfactory.backends.flight.protocol.rows import encode_rows
from streamfactory.backends.flight.server import FlightServer
from streamfactory.spi import ConnectionFailed, Summary
from streamfactory.wiring.config.definition import Property
from streamfactory.wiring.serving import process
from streamfactory.wiring.serving.servers import open_server
from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.objects.server import ObjectServer

DEADLINE = 60.0
ROWS = pa.table({"number": [1, 2, 3]})
COMMITS = 10_000


def put(properties: dict[str, str], epoch: int) -> None:
    with open_sink(properties) as sink:
        sink.put(ROWS, writer_id="w", epoch=epoch)


def read(properties: dict[str, str]) -> int:
    with streamfactory.open(properties) as opened:
        found: int = opened.to_reader().read_all().num_rows
    return found


def commit_rows(location: str) -> Committed:
    """Commit rows that travel with the call, as a client without a claim."""
    (rows,) = ROWS.to_batches()
    inline = {"inline": encode_rows([(0, rows)], ROWS.schema)}
    sealed = Sealed(uuid.uuid4().hex, (inline,))
    request = Commit(
        topic="clicks", writer=None, epoch=0, staged=(sealed,), instance="i", rows=3
    )
    with closing(fl.connect(location)) as client:
        (answer,) = client.do_action(("commit", encode(request)))
    return decode(answer.body.to_pybytes(), Committed)


def refused(client: fl.FlightClient) -> str:
    """The words with which a new call is refused; empty while it is not."""
    # One that comes before the signal waits for the held request of the store.
    options = fl.FlightCallOptions(timeout=2.0)
    try:
        list(client.do_action(("topics", b'{"v":1}'), options))
    except fl.FlightUnavailableError as error:
        return str(error)
    except fl.FlightTimedOutError:
        pass
    return ""


@contextmanager
def closing_of(proxy: FaultyProxy, released: threading.Event) -> Iterator[None]:
    """Let go of the held request in the end, and stop the proxy."""
    try:
        yield
    finally:
        released.set()
        proxy.stop()


def test_a_commit_under_way_is_finished_and_answered_before_the_server_ends(
    object_server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OBJECT_KEY", OWNER.key)
    monkeypatch.setenv("OBJECT_SECRET", OWNER.secret)
    armed, seen, released = (threading.Event() for _ in range(3))

    def hold(method: str, path: str) -> None:
        """Hold the request that publishes a commit."""
        if armed.is_set() and method == "PUT" and "/log/" in path:
            seen.set()
            assert released.wait(DEADLINE)

    url = place()
    proxy = FaultyProxy(object_server.port, hold)
    served = streamfactory.serve(
        path=url,
        storage_endpoint=proxy.endpoint,
        storage_region="us-east-1",
        storage_access_key="${env:OBJECT_KEY}",
        storage_secret_key="${env:OBJECT_SECRET}",
        storage_allow_http=True,
        drain_timeout_millis=f"{DEADLINE:.0f}s",
    )
    with closing_of(proxy, released), served as server:
        put(stream(server), 0)
        with (
            ThreadPoolExecutor() as threads,
            closing(fl.connect(server.location)) as client,
        ):
            client.wait_for_available()
            armed.set()
            commit = threads.submit(commit_rows, server.location)
            assert seen.wait(DEADLINE)
            os.kill(server.pid, signal.SIGTERM)
            deadline = time.monotonic() + DEADLINE
            while not (refusal := refused(client)):
                assert time.monotonic() < deadline
            assert "the server is shutting down; retry" in refusal
            with pytest.raises(TimeoutError):
                server.wait(3)  # longer than answers may take at the end
            assert not commit.done()
            released.set()
            assert commit.result(DEADLINE).held is None
        assert server.wait(DEADLINE) == 0
        assert read(properties_at(object_server.endpoint, url, "clicks")) == 6


def test_idle_clients_do_not_hold_up_the_end(tmp_path: Path) -> None:
    with streamfactory.serve(path=str(tmp_path)) as server:
        put(stream(server), 0)
        with closing(fl.connect(server.location)) as client:
            command = encode(Subscribe("clicks", 0))
            writer, reader = client.do_exchange(
                fl.FlightDescriptor.for_command(command)
            )
            writer.write_metadata(encode(Fetch(1, 0, 100, 1 << 20)))
            assert reader.read_chunk().data.num_rows == 3
            os.kill(server.pid, signal.SIGTERM)
            assert server.wait(DEADLINE) == 0
            with pytest.raises(fl.FlightError):
                reader.read_chunk()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_with_status_zero(
    number: signal.Signals, tmp_path: Path
) -> None:
    with streamfactory.serve(path=str(tmp_path)) as server:
        put(stream(server), 0)
        os.kill(server.pid, number)
        os.kill(server.pid, number)  # people press it twice
        assert server.wait(DEADLINE) == 0
    with streamfactory.serve(path=str(tmp_path)) as server:
        put(stream(server), 0)
        assert read(stream(server)) == 3


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"address": "127.0.0.1:0"}, "grpc://127.0.0.1:{port}"),
        ({"address": "0.0.0.0:0"}, "arrow-flight-reuse-connection://?"),
        ({"address": "[::]:0"}, "arrow-flight-reuse-connection://?"),
        (
            {"address": "0.0.0.0:0", "advertise": "grpc://streams.example.com:8815"},
            "grpc://streams.example.com:8815",
        ),
    ],
)
def test_endpoints_have_a_location_that_clients_can_reach(
    settings: dict[str, str], expected: str
) -> None:
    given = {"memory": "true", "allow.remote": "true", **settings}
    properties = [Property(key, text, "argument") for key, text in given.items()]
    with closing(open_server("flight", properties)) as server:
        assert isinstance(server, FlightServer)
        port = server.port
        with closing(fl.connect(f"grpc://localhost:{port}")) as client:
            descriptor = fl.FlightDescriptor.for_path("clicks")
            writer, _ = client.do_put(descriptor, ROWS.schema)
            writer.close()
            (endpoint,) = client.get_flight_info(descriptor).endpoints
    assert [bytes(one.uri).decode() for one in endpoint.locations] == [
        expected.format(port=port)
    ]


@pytest.mark.long("makes ten thousand commits")
def test_a_topic_of_ten_thousand_commits_opens_in_a_moment(tmp_path: Path) -> None:
    store = DiskLogStore(LocalStorage(tmp_path, fsync="never"), Settings())
    schema = pa.schema([pa.field("number", pa.int64())])
    rows = pa.record_batch([pa.array([1, 2, 3], pa.int64())], schema=schema)
    for topic, commits in (("long", COMMITS), ("short", 1)):
        log = store.create(topic, schema)
        for epoch in range(commits):
            stage = log.stage(uuid.uuid4().hex)
            stage.append(0, rows)
            log.commit(Epoch(f"w{epoch % 50}", epoch, [stage.seal()], Summary(3)))
    store.close()
    took: dict[str, list[float]] = {"long": [], "short": []}
    for _ in range(3):
        with (
            streamfactory.serve(path=str(tmp_path)) as server,
            closing(fl.connect(server.location)) as client,
        ):
            client.wait_for_available()
            list(client.do_action(("topics", b'{"v":1}')))
            for topic, times in took.items():
                start = time.perf_counter()
                descriptor = fl.FlightDescriptor.for_path(topic)
                info = client.get_flight_info(descriptor)
                times.append(time.perf_counter() - start)
                assert info.total_records == 3 * (COMMITS if topic == "long" else 1)
    # A second, and three times as much for a machine that is busy.
    assert min(took["long"]) < 3, took


def test_a_child_that_does_not_listen_in_time_is_killed_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process, "_START_TIMEOUT", 0.01)
    with pytest.raises(ConnectionFailed, match=r"did not listen within 0\.01 s"):
        streamfactory.serve(memory=True)
