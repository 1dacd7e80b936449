"""Failures are reported in time, in words and in few lines."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest
from tests.kafka.conftest import stream_of
from tests.kafka.paths import BEFORE_READING
from tests.kafka.streams import drain, opened, reading
from tests.kafka.topics import Topics
from tests.proving.commands import command_of
from tests.proving.ports import free_port

from streamfactory.backends.kafka.bootstrap import refusals
from streamfactory.spi import ConfigError, ConnectionFailed, StreamError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.kafka.broker import Addresses, Cluster

pytestmark = pytest.mark.usefixtures("each_path")

QUICK = {"stream.kafka.connection.timeout.millis": "2000"}


@pytest.fixture
def one_message(mortal: Cluster) -> str:
    """A topic of the broker that may be killed, with one message."""
    topics = Topics(mortal.bootstrap)
    name = topics.create()
    topics.send(name, [b"v"])
    return name


@BEFORE_READING
def test_no_broker_is_reported_within_the_timeout() -> None:
    port = free_port()
    address = f"127.0.0.1:{port}"
    started = time.monotonic()
    with (
        opened(stream_of(address, "clicks") | QUICK) as source,
        pytest.raises(ConnectionFailed) as caught,
    ):
        source.metadata.partitions()
    assert time.monotonic() - started < 25
    text = str(caught.value)
    assert "topic 'clicks' cannot be described" in text
    assert f"{address} refuses connections" in text


@BEFORE_READING
def test_a_resolver_that_hangs_delays_no_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    address, ended = f"127.0.0.1:{free_port()}", threading.Event()

    def hang(*_: object) -> None:
        ended.wait(60)
        raise socket.gaierror

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    started = time.monotonic()
    with (
        opened(stream_of(address, "clicks") | QUICK) as source,
        pytest.raises(ConnectionFailed, match="responded within 2 s"),
    ):
        source.metadata.partitions()
    assert time.monotonic() - started < 25
    ended.set()


def test_addresses_after_one_that_accepts_connections_are_not_tested() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as first,
        socket.create_server(("127.0.0.1", 0)) as second,
    ):
        ports = [one.getsockname()[1] for one in (first, second)]
        addresses = f"127.0.0.1:{free_port()}," + ",".join(
            f"127.0.0.1:{port}" for port in ports
        )
        assert refusals(addresses) is None
        first.accept()[0].close()
        second.setblocking(False)
        with pytest.raises(BlockingIOError):
            second.accept()


@BEFORE_READING
@pytest.mark.parametrize("command", ["lag", "check", "tail --no-follow"])
def test_a_command_that_looks_once_waits_for_no_broker_to_start(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str
) -> None:
    address = f"127.0.0.1:{free_port()},localhost:{free_port()}"
    stream = tmp_path / "clicks.json"
    stream.write_text(json.dumps({"properties": stream_of(address, "clicks")}))
    name, *options = command.split()
    started = time.monotonic()
    found = command_of(capsys)(name, str(stream), *options)
    assert time.monotonic() - started < 15  # connection.timeout.millis is 30 s
    assert found.status == 1
    reasons = " refuses connections, ".join(address.split(","))
    assert f"{reasons} refuses connections" in found.out + found.err


@BEFORE_READING
def test_what_is_waited_for_is_a_warning_after_a_second(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with (
            opened(stream_of(address, "clicks") | QUICK) as source,
            pytest.raises(ConnectionFailed),
        ):
            source.metadata.partitions()
    assert caplog.text.count(f"waiting for {address}, for up to 1 s") == 1


@BEFORE_READING
def test_a_host_without_an_address_is_reported() -> None:
    properties = stream_of("nowhere.invalid:9092", "clicks") | QUICK
    # A resolver that is asked too often falls silent.
    properties["stream.kafka.consumer.prop.reconnect.backoff.ms"] = "100"
    with opened(properties) as source, pytest.raises(ConnectionFailed) as caught:
        source.metadata.partitions()
    assert "nowhere.invalid:9092" in str(caught.value)


@BEFORE_READING
def test_a_port_that_never_answers_is_reported_within_the_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        started = time.monotonic()
        with (
            opened(stream_of(address, "clicks") | QUICK) as source,
            pytest.raises(ConnectionFailed) as caught,
        ):
            source.metadata.list_topics()
        assert time.monotonic() - started < 25
    assert "topics cannot be listed" in str(caught.value)


@pytest.mark.long("waits for timeouts of the client")
def test_brokers_that_stay_away_end_a_reader(mortal: Cluster, one_message: str) -> None:
    short = {
        "stream.kafka.broker.timeout.millis": "1500",
        "retry.max.attempts": "1",
    }
    with reading(stream_of(mortal.bootstrap, one_message) | short) as reader:
        drain(reader, rows=1)
        mortal.nodes[0].end(signal.SIGKILL)
        started = time.monotonic()
        with pytest.raises(ConnectionFailed) as caught:
            drain(reader, 1, rows=1)
        assert time.monotonic() - started < 60
    assert mortal.bootstrap in str(caught.value)
    assert caught.value.offset == 1


def test_a_broker_that_falls_silent_keeps_no_one_from_closing(
    mortal: Cluster, one_message: str
) -> None:
    with reading(stream_of(mortal.bootstrap, one_message)) as reader:
        drain(reader, rows=1)
        mortal.nodes[0].pause()
        try:
            reader.fetch(1, timeout=0.5)
            started = time.monotonic()
            reader.close()
            assert time.monotonic() - started < 30
        finally:
            mortal.nodes[0].resume()


@BEFORE_READING
def test_an_isolation_level_said_twice_has_to_agree(kafka: Addresses) -> None:
    both = {
        "stream.kafka.isolation.level": "read_committed",
        "stream.kafka.consumer.prop.isolation.level": "read_uncommitted",
    }
    with (
        pytest.raises(ConfigError, match="disagrees"),
        opened(stream_of(kafka.bootstrap, "t") | both),
    ):
        pass


PROGRAM = """
import sys, streamfactory
try:
    streamfactory.open(dict(zip(sys.argv[1::2], sys.argv[2::2])))
except Exception as error:
    print(f"{type(error).__name__}: {error}", file=sys.stderr)
"""


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"stream.kafka.consumer.prop.security.protocol": "SSL"},
        {
            "stream.kafka.consumer.prop.security.protocol": "SASL_PLAINTEXT",
            "stream.kafka.consumer.prop.sasl.mechanism": "PLAIN",
            "stream.kafka.consumer.prop.sasl.username": "a",
            "stream.kafka.consumer.prop.sasl.password": "b",
        },
    ],
    ids=["unreachable", "ssl", "sasl"],
)
def test_few_lines_stand_on_standard_error(more: Mapping[str, str]) -> None:
    port = free_port()
    properties = {**stream_of(f"127.0.0.1:{port}", "clicks"), **QUICK, **more}
    words = [word for pair in properties.items() for word in pair]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    lines = done.stderr.strip().splitlines()
    assert len(lines) <= 10
    assert f"127.0.0.1:{port}" in done.stderr
    assert StreamError.__name__ not in done.stderr
