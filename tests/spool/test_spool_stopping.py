"""A receiver that is stopped ends soon, whatever its transport does."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.proving.ports import free_port
from tests.spool.receiving import DEADLINE, quick_spool, receiving, specimens

from streamfactory.arrowlog.disk import DiskLogStore, LocalStorage, Settings
from streamfactory.conformance.specimens import forgetful
from streamfactory.spi import ConfigError
from streamfactory.wiring.config.configure import configure
from streamfactory.wiring.config.definition import from_mapping
from streamfactory.wiring.plugins.manager import default_manager
from streamfactory.wiring.receiving.embedded import open_source
from streamfactory.wiring.streams.stream import open_stream

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from streamfactory.wiring.config.settled import Configured

SOON = 20.0
"""Seconds; mostly one or two, but the machine may be busy."""
LONG = "300s"
"""A timeout that the tests do not wait for."""
KINDS = ["socket, nobody connects", "socket, a silent sender", "zeromq", "flight"]


@contextmanager
def silent_server() -> Iterator[int]:
    """The port of a server that accepts connections, and sends nothing."""
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.05)

        def accept() -> None:
            with ExitStack() as connections:
                while not ended.is_set():
                    with suppress(TimeoutError):
                        connections.enter_context(server.accept()[0])

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield int(server.getsockname()[1])
        finally:
            ended.set()
            thread.join()


def silent(kind: str, folder: Path, port: int) -> dict[str, str]:
    """A stream whose senders, or server, do not send a schema."""
    own = {
        "socket, nobody connects": {
            "streamType": "socket",
            "stream.socket.listen": f"127.0.0.1:{free_port()}",
        },
        "socket, a silent sender": {
            "streamType": "socket",
            "stream.socket.connect": f"127.0.0.1:{port}",
        },
        "zeromq": {
            "streamType": "zeromq",
            "stream.zeromq.bind": f"tcp://127.0.0.1:{free_port()}",
            "stream.zeromq.pattern": "push-pull",
        },
        # Its client blocks in C++.
        "flight": {
            "streamType": "flight",
            "stream.flight.protocol": "plain",
            "stream.flight.location": f"grpc://127.0.0.1:{port}",
        },
    }[kind]
    name = f"stream.{own['streamType']}"
    return {
        **own,
        f"{name}.topic.name": "numbers",
        f"{name}.connection.timeout.millis": LONG,
        **quick_spool(folder),
    }


def embedded(folder: Path) -> Configured:
    given = silent("socket, nobody connects", folder, 0)
    given |= {"spool.receiver": "embedded"}
    return configure(from_mapping(given), default_manager(), use="read")


@pytest.mark.slow("starts the command")
@pytest.mark.parametrize("kind", KINDS)
def test_a_signal_ends_the_service_while_it_waits_for_a_schema(
    kind: str, tmp_path: Path
) -> None:
    number = signal.SIGINT if kind == "zeromq" else signal.SIGTERM
    with silent_server() as port:
        body = {"name": "one", "properties": silent(kind, tmp_path, port)}
        path = tmp_path / "one.json"
        path.write_text(json.dumps(body))
        words = ("spool", str(path), "--every", "20ms")
        with subprocess.Popen(
            [sys.executable, "-m", "streamfactory", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as child:
            assert child.stderr is not None
            while "waiting" not in child.stderr.readline():
                assert child.poll() is None
            time.sleep(0.3)  # the wait for a schema has begun
            began = time.monotonic()
            child.send_signal(number)
            out, err = child.communicate(timeout=120)
    assert time.monotonic() - began < SOON
    assert child.returncode == 0, err
    assert out == "one: nothing received (no sender connected)\n"


@pytest.mark.parametrize("kind", KINDS)
def test_a_receiver_is_closed_while_it_waits_for_a_schema(
    kind: str, tmp_path: Path
) -> None:
    with silent_server() as port:
        receiver = receiving(silent(kind, tmp_path, port))
        assert not receiver.wait_ready(0.5)
        began = time.monotonic()
        receiver.close()
        assert time.monotonic() - began < SOON
        assert receiver.error is None


def test_an_embedded_receiver_ends_with_an_interrupted_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> bool:
        time.sleep(0.3)
        raise KeyboardInterrupt

    place = "streamfactory.wiring.receiving.receiver.StreamReceiver.wait_ready"
    monkeypatch.setattr(place, interrupt)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        open_source(embedded(tmp_path))
    assert time.monotonic() - began < SOON


def test_an_error_that_ends_an_embedded_receiver_is_raised_at_once(
    tmp_path: Path,
) -> None:
    store = DiskLogStore(LocalStorage(tmp_path / "spool"), Settings())
    store.create("numbers", pa.schema([("number", pa.int64())]))
    store.close()
    began = time.monotonic()
    with pytest.raises(ConfigError, match="is not a spool"):
        open_source(embedded(tmp_path))
    assert time.monotonic() - began < SOON


def test_received_rows_are_committed_while_a_fetch_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hangs, proceed = threading.Event(), threading.Event()
    fetch = forgetful.ForgetfulConsumer.fetch_messages

    def fetch_once(self: Any, start: int, end: Any, limits: Any) -> Any:
        if start >= 50:
            hangs.set()
            proceed.wait(DEADLINE)
        return fetch(self, start, end, limits)

    monkeypatch.setattr(forgetful.ForgetfulConsumer, "fetch_messages", fetch_once)
    harness = forgetful.ForgetfulHarness(tmp_path)
    harness.create(1)
    properties = {**harness.properties(), **quick_spool(tmp_path)}
    try:
        receiver = receiving(properties, specimens())
        harness.write(0, range(50))
        assert hangs.wait(DEADLINE)
        began = time.monotonic()
        receiver.close()
        assert time.monotonic() - began < SOON
        assert "a call of the transport has not returned" in caplog.text
        with open_stream(properties, plugins=specimens()) as stream:
            rows = stream.to_reader().read_all()
        assert rows["number"].to_pylist() == [*range(50)]
    finally:
        proceed.set()
        harness.close()
