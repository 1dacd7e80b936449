"""Metrics, statistics and health of a Flight server, by HTTP and by actions."""

from __future__ import annotations

import json
import re
import socket
import sys
import time
import urllib.error
import urllib.request
from contextlib import closing, suppress
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.flight as fl
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.flight.conftest import stream

import streamfactory
from streamfactory.backends.flight.protocol.codec import encode
from streamfactory.backends.flight.protocol.messages import (
    ClaimCheckpoint,
    Fetch,
    SaveCheckpoint,
    Subscribe,
    Topic,
)
from streamfactory.backends.flight.server.metrics import METRICS
from streamfactory.spi import (
    ConfigError,
    NotInstalled,
    Partition,
    Position,
    StreamError,
)
from streamfactory.wiring.config.definition import Property
from streamfactory.wiring.serving.servers import open_metrics, open_server
from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from streamfactory.wiring.serving.process import ServerProcess

DEADLINE = 60.0
ROWS = pa.table({"id": [1, 2, 3]})
EMPTY = b'{"v":1}'


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with streamfactory.serve(
        path=str(tmp_path / "topics"),
        metrics_address="127.0.0.1:0",
        stalled_after_millis="100ms",
    ) as server:
        yield server


@pytest.fixture
def client(server: ServerProcess) -> Iterator[fl.FlightClient]:
    with closing(fl.connect(server.location)) as client:
        yield client


def put(server: ServerProcess, topic: str = "clicks", epoch: int = 0) -> None:
    with open_sink(stream(server, topic)) as sink:
        sink.put(ROWS, writer_id="w", epoch=epoch)


def fetch(server: ServerProcess, path: str) -> bytes:
    assert server.metrics is not None
    url = server.metrics.removesuffix("/metrics") + path
    with urllib.request.urlopen(url, timeout=DEADLINE) as answer:
        found: bytes = answer.read()
    return found


def key(name: str, labels: Mapping[str, str]) -> tuple[str, ...]:
    """Name and values of the labels, by label."""
    return name, *(labels[label] for label in sorted(labels))


def by_http(server: ServerProcess) -> dict[tuple[str, ...], float]:
    """Values by Prometheus name and labels."""
    text = fetch(server, "/metrics").decode()
    return {
        key(sample.name, sample.labels): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def by_action(
    client: fl.FlightClient, options: fl.FlightCallOptions | None = None
) -> dict[tuple[str, ...], float]:
    """Values by name and labels."""
    (answer,) = client.do_action(("statistics", EMPTY), options)
    found = json.loads(answer.body.to_pybytes())
    assert found["v"] == 1
    return {
        key(one["name"], one.get("labels", {})): one["value"]
        for one in found["metrics"]
    }


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_what_passes_through_is_counted_by_topic(
    server: ServerProcess, client: fl.FlightClient
) -> None:
    put(server)
    put(server)  # the same epoch: without effect
    put(server, epoch=1)
    with streamfactory.open(stream(server)) as opened:
        assert opened.to_reader().read_all().num_rows == 6
    with pytest.raises(fl.FlightError):
        client.do_get(fl.Ticket(b"nonsense")).read_all()
    until(lambda: by_action(client)["server.latest.offset", "0", "clicks"] == 6)
    found = by_action(client)
    size = 8 * 3
    expected: dict[tuple[str, ...], float] = {
        ("server.topics",): 1,
        ("server.topics.omitted",): 0,
        ("server.partitions", "clicks"): 1,
        ("server.earliest.offset", "0", "clicks"): 0,
        ("server.latest.offset", "0", "clicks"): 6,
        ("server.commits", "clicks"): 2,
        ("server.commits.repeated", "clicks"): 1,
        ("server.received.rows", "clicks"): 6,
        ("server.received.bytes", "clicks"): 2 * size,
        ("server.sent.rows", "clicks"): 6,
        ("server.sent.bytes", "clicks"): 2 * size,
        ("server.calls.failed", "format_refused", "get"): 1,
        ("server.draining",): 0,
    }
    assert expected.items() <= found.items()
    http = by_http(server)
    for metric in METRICS:
        samples = {k[1:]: v for k, v in found.items() if k[0] == metric.name}
        shown = {k[1:]: v for k, v in http.items() if k[0] == metric.prometheus_name}
        assert samples.keys() == shown.keys(), metric.name
        if not metric.name.startswith(("server.calls", "server.clients")):
            assert samples == shown
    plain = json.loads(fetch(server, "/statistics"))
    own = [one for one in plain if one["name"].startswith("server.")]
    assert {key(one["name"], one["labels"]) for one in own} == found.keys()


def test_a_reader_that_takes_nothing_is_stalled(
    server: ServerProcess, client: fl.FlightClient
) -> None:
    large = pa.table({"id": pa.array(range(4_000_000), pa.int64())})
    with open_sink(stream(server)) as sink:
        sink.put(large, writer_id="w", epoch=0)
    info = client.get_flight_info(fl.FlightDescriptor.for_path("clicks"))
    reader = client.do_get(info.endpoints[0].ticket)
    until(lambda: by_action(client)["server.readers.stalled", "clicks"] == 1)
    assert by_action(client)["server.readers", "clicks"] == 1
    assert by_action(client)["server.readers.lag.rows", "clicks"] > 0
    assert reader.read_all().num_rows == large.num_rows
    until(lambda: by_action(client)["server.readers", "clicks"] == 0)
    assert by_action(client)["server.readers.stalled", "clicks"] == 0


def test_a_subscriber_without_requests_is_stalled_while_rows_are_available(
    server: ServerProcess, client: fl.FlightClient
) -> None:
    put(server)
    command = encode(Subscribe("clicks", 0))
    writer, reader = client.do_exchange(fl.FlightDescriptor.for_command(command))
    writer.write_metadata(encode(Fetch(1, 0, 100, 1 << 20)))
    assert reader.read_chunk().data.num_rows == 3
    time.sleep(1.3)
    # It has all rows: nothing keeps it from being idle.
    assert by_action(client)["server.readers.stalled", "clicks"] == 0
    put(server, epoch=1)
    until(lambda: by_action(client)["server.readers.stalled", "clicks"] == 1)
    assert by_action(client)["server.readers.lag.rows", "clicks"] == 3
    writer.write_metadata(encode(Fetch(2, 3, 100, 1 << 20)))
    assert reader.read_chunk().data.num_rows == 3
    until(lambda: by_action(client)["server.readers.stalled", "clicks"] == 0)
    writer.close()


def test_a_topic_that_was_deleted_has_no_metrics(
    server: ServerProcess, client: fl.FlightClient
) -> None:
    put(server)
    put(server, "other")
    assert ("server.commits", "clicks") in by_action(client)
    list(client.do_action(("delete", encode(Topic("clicks")))))
    until(lambda: not any("clicks" in key for key in by_action(client)))
    assert by_action(client)["server.commits", "other"] == 1


def test_the_lag_of_checkpoints_is_shown_by_group(
    server: ServerProcess, client: fl.FlightClient
) -> None:
    put(server)
    (answer,) = client.do_action(("describe", encode(Topic("clicks"))))
    incarnation = json.loads(answer.body.to_pybytes())["incarnation"]

    def save(group: str, offset: int, incarnation: str) -> None:
        partition = Partition("clicks", 0)
        position = Position({partition: offset}, {partition: incarnation}).to_json()
        claim = ClaimCheckpoint(group, "0", "me")
        list(client.do_action(("checkpoints-claim", encode(claim))))
        saved = SaveCheckpoint(group, "0", "me", offset, position)
        list(client.do_action(("checkpoints-save", encode(saved))))

    save("reports", 1, incarnation)
    save("strangers", 1, "another")
    lag = ("server.checkpoint.lag.rows", "reports", "clicks")
    until(lambda: by_action(client).get(lag) == 2)
    put(server, epoch=1)
    until(lambda: by_action(client).get(lag) == 5)
    save("reports", 6, incarnation)
    until(lambda: by_action(client).get(lag) == 0)
    found = by_action(client)
    assert found["server.groups",] == 2
    assert not any("strangers" in key for key in found)
    name = "streamfactory_server_checkpoint_lag_rows"
    assert by_http(server)[name, "reports", "clicks"] == 0


def test_a_damaged_topic_is_omitted_and_sound_ones_are_shown(
    server: ServerProcess, client: fl.FlightClient, tmp_path: Path
) -> None:
    put(server)
    put(server, "other")
    for path in (tmp_path / "topics" / "clicks.topic").iterdir():
        if path.is_file():
            path.write_bytes(b"damaged")
    until(lambda: by_action(client)["server.topics.omitted",] == 1)
    found = by_action(client)
    assert found["server.topics",] == 2
    assert found["server.latest.offset", "0", "other"] == 3
    assert ("server.latest.offset", "0", "clicks") not in found


def test_a_client_sees_statistics_of_the_topics_that_it_may_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = {"ALICE": "alice-has-a-long-token", "BOB": "bob-has-another-token"}
    for name, token in tokens.items():
        monkeypatch.setenv(name, token)
    access = tmp_path / "access.toml"
    access.write_text(
        '[tokens]\nalice = "${env:ALICE}"\nbob = "${env:BOB}"\n'
        '[topics."*"]\nread = ["alice"]\nwrite = ["alice"]\n'
        '[topics."public"]\nread = ["bob"]\n'
        '[groups."team"]\nread = ["alice"]\nwrite = ["alice"]\n'
    )
    with (
        streamfactory.serve(memory=True, access_file=str(access)) as server,
        closing(fl.connect(server.location)) as client,
    ):
        for topic in ("secret", "public"):
            with open_sink(stream(server, topic, token="${env:ALICE}")) as sink:
                sink.put(ROWS, writer_id="w", epoch=0)
        position = Position({Partition("public", 0): 1}).to_json()
        header = (b"authorization", b"Bearer " + tokens["ALICE"].encode())
        options = fl.FlightCallOptions(headers=[header])
        for name, request in (
            ("checkpoints-claim", ClaimCheckpoint("team", "0", "me")),
            ("checkpoints-save", SaveCheckpoint("team", "0", "me", 0, position)),
        ):
            list(client.do_action((name, encode(request)), options))
        seen = {}
        for name, token in tokens.items():
            header = (b"authorization", b"Bearer " + token.encode())
            options = fl.FlightCallOptions(headers=[header])
            seen[name] = by_action(client, options)
        assert ("server.commits", "secret") in seen["ALICE"]
        assert ("server.checkpoint.lag.rows", "team", "public") in seen["ALICE"]
        assert not any("team" in key for key in seen["BOB"])
        assert ("server.commits", "public") in seen["BOB"]
        assert not any("secret" in key for key in seen["BOB"])
        with pytest.raises(fl.FlightUnauthenticatedError):
            by_action(client)


@pytest.mark.long("waits for silent clients")
def test_hostile_clients_do_not_stop_the_http_endpoint(server: ServerProcess) -> None:
    assert server.metrics is not None
    found = re.fullmatch(r"http://([\d.]+):(\d+)/metrics", server.metrics)
    assert found is not None
    place = (found[1], int(found[2]))
    silent = [socket.create_connection(place) for _ in range(40)]
    silent[0].sendall(b"GET /met")
    for one in silent:
        one.close()
    for request in (
        b"\0" * 70_000,
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /metrics HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n",
        b"GET /../../etc/passwd HTTP/1.1\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\n" + b"X: y\r\n" * 200 + b"\r\n",
    ):
        with socket.create_connection(place) as one:
            answer = b""
            # The server may answer and close before all is sent.
            with suppress(OSError):
                one.sendall(request)
                one.shutdown(socket.SHUT_WR)
            with suppress(ConnectionError):
                while part := one.recv(65536):
                    answer += part
            assert b" 200 " not in answer.splitlines()[:1], request[:40]

    def answers() -> bool:
        try:
            return b"streamfactory_server_topics" in fetch(server, "/metrics")
        except (OSError, urllib.error.URLError):
            return False

    until(answers)


@pytest.mark.long("waits for a time-out of ten seconds")
def test_slow_http_clients_are_bounded_and_dropped(server: ServerProcess) -> None:
    """All connections that are allowed are taken; they time out."""
    assert server.metrics is not None
    host, port = server.metrics.removeprefix("http://").split("/")[0].split(":")
    silent = [socket.create_connection((host, int(port))) for _ in range(16)]
    with pytest.raises((OSError, urllib.error.URLError)):
        fetch(server, "/health")
    for one in silent:
        one.settimeout(DEADLINE)
        assert one.recv(1) == b""  # dropped by the server
        one.close()
    assert json.loads(fetch(server, "/health"))["ready"]


def test_an_address_open_to_the_network_is_refused_unless_allowed() -> None:
    for address in ("0.0.0.0:0", "[::]:0", "example.com:80"):
        with pytest.raises(ConfigError, match=r"metrics\.address: .*open to the net"):
            streamfactory.serve(memory=True, metrics_address=address)
    with pytest.raises(ConfigError, match="is not host:port"):
        streamfactory.serve(memory=True, metrics_address="9815")
    with streamfactory.serve(
        memory=True, metrics_address="0.0.0.0:0", metrics_allow_remote=True
    ) as server:
        assert server.metrics is not None
        assert server.metrics.startswith("http://0.0.0.0:")


def test_an_address_in_use_ends_the_server(capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        start = time.monotonic()
        with pytest.raises(StreamError):
            streamfactory.serve(memory=True, metrics_address=address)
        assert time.monotonic() - start < DEADLINE
    assert f"cannot be served on {address}" in capfd.readouterr().err


def test_without_prometheus_client_the_install_command_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    settings = {
        "memory": "true",
        "address": "127.0.0.1:0",
        "metrics.address": "127.0.0.1:0",
    }
    given = [Property(key, text, "argument") for key, text in settings.items()]
    server = open_server("flight", given)
    try:
        with pytest.raises(NotInstalled) as caught:
            open_metrics(server)
    finally:
        server.close()
    assert caught.value.remedy == "run: pip install 'streamfactory[metrics]'"


def test_the_endpoint_takes_the_port_of_a_server_that_was_killed() -> None:
    given = {"memory": "true", "address": "127.0.0.1:0"}
    scraped = {**given, "metrics.address": "127.0.0.1:0"}
    with closing(
        open_server("flight", [Property(k, v, "argument") for k, v in scraped.items()])
    ) as server:
        first = open_metrics(server)
        assert first is not None
        port = int(first.location.split(":")[2].split("/")[0])
        with socket.create_connection(("127.0.0.1", port), DEADLINE) as scraper:
            scraper.sendall(b"GET /health HTTP/1.0\r\n\r\n")
            while scraper.recv(1 << 16):  # the server is the first to close
                pass
        first.close()
    # The connection is in TIME_WAIT now.
    again = {**given, "metrics.address": f"127.0.0.1:{port}"}
    with closing(
        open_server("flight", [Property(k, v, "argument") for k, v in again.items()])
    ) as server:
        second = open_metrics(server)
        assert second is not None
        second.close()
