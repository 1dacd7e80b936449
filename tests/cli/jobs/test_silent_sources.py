"""Signals while the server of a source or sink does not answer: a command ends soon."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import pytest

import streamfactory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.proving.commands import Outcome

    from streamfactory.wiring.serving.process import ServerProcess

pytestmark = pytest.mark.slow("starts commands, and signals them")

SOON = 20.0
"""Seconds; mostly one or two, but the machine may be busy."""
LONG = "300s"
"""A timeout that the tests do not wait for."""


@pytest.fixture
def server() -> Iterator[ServerProcess]:
    with streamfactory.serve(memory=True) as found:
        yield found


@pytest.fixture
def source(
    server: ServerProcess, tmp_path: Path, program: Callable[..., Outcome]
) -> Path:
    """A stream of the server, with two rows."""
    properties = {
        "streamType": "flight",
        "stream.flight.topic.name": "numbers",
        "stream.flight.location": server.location,
        "stream.flight.connection.timeout.millis": LONG,
        "metadata.refresh.millis": "100",
    }
    path = tmp_path / "numbers.json"
    path.write_text(json.dumps({"name": "numbers", "properties": properties}))
    done = program("publish", path, "-", "--format", "csv", text="number\n1\n2\n")
    assert done.status == 0, done.err
    return path


@contextmanager
def started(folder: Path, *words: object) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-m", "streamfactory", *map(str, words)],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        try:
            yield child
        finally:
            child.kill()


@contextmanager
def frozen(server: ServerProcess) -> Iterator[None]:
    os.kill(server.pid, signal.SIGSTOP)
    try:
        time.sleep(0.5)  # a call is under way, which gets no answer
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


def ended(child: subprocess.Popen[str], number: signal.Signals) -> tuple[int, str]:
    began = time.monotonic()
    child.send_signal(number)
    _, err = child.communicate(timeout=120)
    assert time.monotonic() - began < SOON
    return child.returncode, err


@pytest.mark.parametrize(
    ("number", "status", "word"),
    [(signal.SIGTERM, 143, "terminated"), (signal.SIGINT, 130, "interrupted")],
)
def test_tail_ends_while_its_server_does_not_answer(
    number: signal.Signals,
    status: int,
    word: str,
    server: ServerProcess,
    source: Path,
    tmp_path: Path,
) -> None:
    with started(tmp_path, "tail", source, "--from", "earliest") as child:
        assert child.stdout is not None
        while child.stdout.readline().strip() != "2":
            assert child.poll() is None
        with frozen(server):
            found = ended(child, number)
    assert found == (status, f"error: [interrupted] {word}\n")


def test_copy_ends_while_its_server_does_not_answer_and_continues(
    server: ServerProcess,
    source: Path,
    tmp_path: Path,
    program: Callable[..., Outcome],
) -> None:
    properties = {
        "streamType": "file",
        "stream.file.path": str(tmp_path / "copied"),
        "stream.file.topic.name": "numbers",
        "realtime.segment.flush.threshold.time": "20ms",
    }
    sink = tmp_path / "copied.json"
    sink.write_text(json.dumps({"name": "copied", "properties": properties}))

    def rows() -> list[int]:
        try:
            with streamfactory.open(properties) as found:
                return found.to_reader().read_all()["number"].to_pylist()  # type: ignore[no-any-return]
        except LookupError:
            return []

    with started(tmp_path, "copy", source, sink, "--follow") as child:
        deadline = time.monotonic() + 60
        while rows() != [1, 2]:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        with frozen(server):
            status, err = ended(child, signal.SIGTERM)
    assert (status, err.splitlines()[-1]) == (143, "error: [interrupted] terminated")
    more = program("publish", source, "-", "--format", "csv", text="number\n3\n")
    assert more.status == 0, more.err
    assert program("copy", source, sink).status == 0
    assert rows() == [1, 2, 3]


def test_lag_that_watches_ends_while_a_server_does_not_answer(
    server: ServerProcess, source: Path, tmp_path: Path
) -> None:
    line = ("lag", source, "--watch", "--every", "100ms")
    with started(tmp_path, *line) as child:
        assert child.stdout is not None
        assert "no group" in child.stdout.readline()
        with frozen(server):
            status, err = ended(child, signal.SIGTERM)
    assert (status, "Traceback" in err) == (0, False)


class SilentServer:
    """Accepts connections, and never answers."""

    def __init__(self) -> None:
        self.connected = threading.Event()
        self._connections: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def stream(self, folder: Path, scheme: str) -> Path:
        """The definition of a stream of this server."""
        host, port = self._listener.getsockname()
        properties = {
            "streamType": "flight",
            "stream.flight.topic.name": "numbers",
            "stream.flight.location": f"{scheme}://{host}:{port}",
            "stream.flight.connection.timeout.millis": LONG,
        }
        path = folder / "silent.json"
        path.write_text(json.dumps({"name": "silent", "properties": properties}))
        return path

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        for one in (self._listener, *self._connections):
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                self._connections.append(self._listener.accept()[0])
            except OSError:
                return
            self.connected.set()


@pytest.fixture
def silent() -> Iterator[SilentServer]:
    with closing(SilentServer()) as found:
        yield found


@pytest.mark.parametrize(
    ("scheme", "words"),
    [
        ("grpc", ("publish", "rows.csv")),
        ("grpc", ("topics show",)),
        ("grpc", ("lag",)),
        ("grpc+tls", ("check",)),
        ("grpc+tls", ("schema",)),
    ],
    ids=str,
)
def test_a_command_ends_whose_server_accepts_and_never_answers(
    scheme: str, words: tuple[str, ...], silent: SilentServer, tmp_path: Path
) -> None:
    (tmp_path / "rows.csv").write_text("number\n1\n")
    command, *rest = words
    stream = silent.stream(tmp_path, scheme)
    with started(tmp_path, *command.split(), stream, *rest) as child:
        assert silent.connected.wait(60)
        status, err = ended(child, signal.SIGTERM)
    assert (status, err.splitlines()[-1]) == (143, "error: [interrupted] terminated")
