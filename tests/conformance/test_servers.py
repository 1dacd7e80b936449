"""Servers that a harness starts."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from streamfactory.conformance import LocalServer, find_program

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ECHO = """
import os, signal, socket, sys
open("pid", "w").write(str(os.getpid()))
if sys.argv[2] == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as server:
    print("listens", flush=True)
    while True:
        server.accept()[0].close()
"""
FORKING = f"""
import signal, subprocess, sys
command = [sys.executable, "-c", {ECHO!r}, *sys.argv[1:]]
child = subprocess.Popen(command, start_new_session=True)
signal.signal(signal.SIGTERM, lambda *_: child.terminate())
child.wait()
"""
"""A server that waits for its processes when it ends, such as PostgreSQL."""
PARENT = """
import sys, time
from pathlib import Path
from streamfactory.conformance import LocalServer
command = lambda port: [sys.executable, "-c", sys.argv[2], str(port), ""]
server = LocalServer(Path(sys.argv[1]), command)
server.start()
if sys.argv[3]:
    server.freeze()
print(server.port, flush=True)
time.sleep(60)
"""


def make(
    folder: Path, kind: str = "", timeout: float = 20.0, program: str = ECHO
) -> LocalServer:
    return LocalServer(
        folder,
        lambda port: [sys.executable, "-c", program, str(port), kind],
        timeout=timeout,
    )


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LocalServer]:
    made = make(tmp_path)
    yield made
    made.close()


def is_alive(folder: Path) -> bool:
    """Whether the process of a server exists, a little later."""
    pid = int((folder / "pid").read_text())
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        time.sleep(0.02)
    return True


def test_a_server_is_started_stopped_and_started_at_the_same_address(
    server: LocalServer, tmp_path: Path
) -> None:
    server.start()
    address = server.address
    socket.create_connection(("127.0.0.1", server.port)).close()
    server.stop()
    assert not is_alive(tmp_path)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port))
    server.start()
    assert server.address == address
    assert server.log == "listens\nlistens\n"
    server.close()
    server.close()
    assert not is_alive(tmp_path)


def test_a_frozen_server_accepts_and_answers_when_it_is_thawed(
    server: LocalServer,
) -> None:
    with pytest.raises(RuntimeError, match="does not run"):
        server.freeze()
    server.start()
    server.thaw()
    server.freeze()
    with socket.create_connection(("127.0.0.1", server.port), 0.2) as connection:
        with pytest.raises(TimeoutError):
            connection.recv(1)
        server.thaw()
        connection.settimeout(20.0)
        assert connection.recv(1) == b""  # it accepts and closes
    server.stop()
    with pytest.raises(RuntimeError, match="does not run"):
        server.freeze()


def test_the_processes_of_a_frozen_server_are_frozen_too(tmp_path: Path) -> None:
    server = make(tmp_path, program=FORKING)
    server.start()
    server.freeze()
    with (
        socket.create_connection(("127.0.0.1", server.port), 0.2) as connection,
        pytest.raises(TimeoutError),
    ):
        connection.recv(1)
    server.stop()
    assert not is_alive(tmp_path)
    server.thaw()
    server.close()


@pytest.mark.parametrize("frozen", ["", "frozen"])
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
@pytest.mark.parametrize("program", [ECHO, FORKING], ids=["one", "several"])
def test_a_server_ends_with_a_process_and_its_group(
    program: str, sent: signal.Signals, frozen: str, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", PARENT, str(tmp_path), program, frozen]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as parent:
        assert parent.stdout is not None
        assert int(parent.stdout.readline()) > 0
        os.killpg(parent.pid, sent)
    assert not is_alive(tmp_path)


def test_another_port_is_taken_where_a_program_has_the_first(tmp_path: Path) -> None:
    ports: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as taken:

        def command(port: int) -> list[str]:
            ports.append(port)
            first = taken.getsockname()[1] if len(ports) == 1 else port
            return [sys.executable, "-c", ECHO, str(first), ""]

        server = LocalServer(tmp_path, command)
        server.start()
        server.close()
    assert len(ports) == 2
    assert server.port == ports[1]


def test_a_server_that_does_not_start_is_named_with_its_log(tmp_path: Path) -> None:
    command = ["sh", "-c", "echo no configuration; sleep 20"]
    server = LocalServer(tmp_path, lambda _: command, timeout=0.5)
    with pytest.raises(RuntimeError, match=r"not start within 0.5 s: no configuration"):
        server.start()
    assert server._shell is None


def test_a_shell_that_is_late_harms_no_other_process(tmp_path: Path) -> None:
    server = LocalServer(tmp_path, lambda _: ["sleep", "60"], timeout=0.0)
    # Its id is not known: that of a process group must not be taken for it.
    with pytest.raises(RuntimeError, match="does not start within 0 s"):
        server.start()
    assert server._shell is None


def test_what_was_stopped_is_not_stopped_again(
    server: LocalServer, capfd: pytest.CaptureFixture[str]
) -> None:
    server.start()
    server.stop()
    server.stop()
    server.close()
    assert "kill" not in capfd.readouterr().err


def test_a_server_that_ignores_the_signal_is_killed(tmp_path: Path) -> None:
    server = make(tmp_path, "stubborn", timeout=1.0)
    server.start()
    with pytest.raises(RuntimeError, match="does not end within 1 s"):
        server.stop()
    assert not is_alive(tmp_path)
    server.start()
    server.close()
    other = make(tmp_path, "stubborn", timeout=1.0)
    other.start()
    other.close()
    assert not is_alive(tmp_path)


def test_a_server_that_was_not_started_cannot_be_stopped(server: LocalServer) -> None:
    with pytest.raises(RuntimeError, match="was not started"):
        server.stop()


def test_a_program_that_is_missing_is_named() -> None:
    assert find_program("sh", "Debian: dash").endswith("/sh")
    with pytest.raises(RuntimeError, match=r"no-such is .*\(Debian: none\)"):
        find_program("no-such", "Debian: none")
