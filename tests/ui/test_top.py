"""``streamfactory top``: frames, and the live table on a pseudo-terminal."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import pty
import signal
import socket
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest
from tests.proving.commands import command_of

import streamfactory
from streamfactory.cli.top import observing
from streamfactory.cli.top.observing import Frame, ProcessObserver, Row, observe
from streamfactory.spi import ConfigError
from streamfactory.wiring.metrics.endpoint import serve_metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.proving.commands import Outcome
    from tests.ui.conftest import World

    Command = Callable[..., Outcome]


@pytest.fixture
def top(capsys: pytest.CaptureFixture[str]) -> Command:
    return command_of(capsys, "top", "--every", "100ms")


def test_one_frame_shows_streams_groups_and_pipelines(
    world: World, top: Command
) -> None:
    found = top("--json")
    assert (found.status, found.err) == (0, "")
    rows = {(one["kind"], one["name"]): one for one in found.json["rows"]}
    assert list(rows) == [
        ("group", "billing"),
        ("pipeline", "delays"),
        ("stream", "clicks"),
    ]
    assert rows["group", "billing"]["lag"] == 10
    assert rows["pipeline", "delays"]["lag"] == 4
    assert rows["pipeline", "delays"]["commit_age_seconds"] > 0
    assert rows["stream", "clicks"]["per_second"] == 0
    lines = top("--sort", "lag").out.splitlines()
    assert lines[0].split() == [
        "KIND",
        "NAME",
        "OF",
        "PER",
        "SECOND",
        "LAG",
        "LOSSES",
        "DEAD",
        "LETTERS",
        "LAST",
        "COMMIT",
        "STATE",
    ]
    assert lines[1].split()[:5] == ["group", "billing", "clicks", "0.0", "10"]


def test_rates_are_what_moved_between_two_frames() -> None:
    before = Frame((Row(1.0, "stream", "a", "", 10), Row(1.0, "stream", "b", "", 10)))
    after = Frame(
        (
            Row(3.0, "stream", "a", "", 30),
            Row(3.0, "stream", "b", "", 5),  # it counts from the beginning again
            Row(3.0, "stream", "c", "", 7),
        )
    )
    assert [row.rate for row in after.after(before).rows] == [10.0, None, None]


def test_a_process_is_shown_by_its_metrics(world: World, top: Command) -> None:
    with streamfactory.open("clicks", start="earliest", follow=True) as stream:
        rows = 0
        while rows < 14:
            batch = stream.next_batch(30)
            assert batch is not None
            rows += batch.num_rows
        with serve_metrics("127.0.0.1:0") as endpoint:
            found = top(endpoint.location, "--json")
    # Other tests of the process count too: writers of "clicks", losses of readers.
    shown = {(one["kind"], one["name"]): one for one in found.json["rows"]}
    reader = shown["reader", "clicks"]
    assert reader["lag"] == 0
    assert endpoint.location.startswith(reader["of"])


class _Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        status, body = self.server.answer  # type: ignore[attr-defined]
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[http.server.HTTPServer]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def sample(value: str, labels: str = '{"stream": "clicks"}') -> bytes:
    return b'[{"name": "read.rows", "labels": %s, "value": %s}]' % (
        labels.encode(),
        value.encode(),
    )


@pytest.mark.parametrize(
    ("status", "body", "state"),
    [
        (500, b"", "status 500"),
        (200, b"not JSON", "no statistics"),
        (200, b'[{"name": 1}]', "no statistics"),
        (200, b"[7]", "no statistics"),
        (200, b"[" * 100_000, "no statistics"),
        (302, b"", "status 302"),
        (200, sample("1", labels="{}"), "no statistics"),
        (200, sample("NaN"), "no statistics"),
        (200, sample("1e999"), "no statistics"),
        (200, sample("1" + "0" * 400), "no statistics"),
        (200, b"[" + b",".join([sample("1e308")[1:-1]] * 2) + b"]", "no statistics"),
    ],
)
def test_an_endpoint_of_another_program_is_named_with_its_reason(
    status: int, body: bytes, state: str, endpoint: http.server.HTTPServer
) -> None:
    endpoint.answer = status, body  # type: ignore[attr-defined]
    url = f"http://127.0.0.1:{endpoint.server_port}"
    rows = observe([ProcessObserver(url)]).rows
    assert [(one.kind, one.name, one.state) for one in rows] == [
        ("process", url, state)
    ]


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\n\r\n["])
def test_an_endpoint_that_answers_byte_by_byte_holds_up_no_frame(
    head: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observing, "_SECONDS", 0.3)
    ended = threading.Event()

    def drip(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection, contextlib.suppress(OSError):
            connection.sendall(head or b"H")
            while not ended.wait(0.05):
                connection.sendall(b" ")

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=drip, args=[server], daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        slow = ProcessObserver(url)
        found: list[str] = []
        frames = threading.Thread(
            target=lambda: found.extend(
                row.state for _ in range(2) for row in observe([slow]).rows
            ),
            daemon=True,
        )
        frames.start()
        frames.join(20)
        ended.set()
        thread.join(20)
        assert found == ["timed out", "timed out"]


def test_names_of_others_cannot_move_the_cursor(
    endpoint: http.server.HTTPServer, top: Command
) -> None:
    evil = "\x1b[2Jred\u202e[bold]x"
    sample = {
        "name": "write.rows",
        "labels": {"stream": evil},
        "value": 1,
    }
    endpoint.answer = 200, json.dumps([sample]).encode()  # type: ignore[attr-defined]
    shown = top(f"http://127.0.0.1:{endpoint.server_port}").out
    assert r"\x1b[2Jred\u202e[bold]x" in shown
    assert "\x1b" not in shown


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["nothing.toml"], "no file of a pipeline, and no URL"),
        (["ftp://user:hunter2@host"], "no address of an endpoint"),
        (["--every", "soon"], "--every"),
        (["--every", "1ms"], "shorter than 100ms"),
        (["--sort", "colour"], "colour"),
    ],
)
def test_mistakes_are_refused(words: list[str], text: str, top: Command) -> None:
    found = top(*words)
    assert found.status == 2
    assert text in found.err
    assert "hunter2" not in found.err


def test_an_address_is_a_url() -> None:
    with pytest.raises(ConfigError, match=r"http://127\.0\.0\.1:9815"):
        ProcessObserver("gopher://x")


class _Terminal:
    """A program on a pseudo-terminal."""

    def __init__(self, *words: str) -> None:
        self.pid, self.number = pty.fork()
        if self.pid == 0:
            os.environ |= {"TERM": "xterm-256color", "COLUMNS": "120", "LINES": "30"}
            program = [sys.executable, "-m", "streamfactory", *words]
            os.execv(sys.executable, program)
        self.text = ""

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + 120
        while text not in self.text:
            assert time.monotonic() < deadline, self.text
            try:
                self.text += os.read(self.number, 65536).decode(errors="replace")
            except OSError:  # it has ended
                break
        assert text in self.text, self.text

    def press(self, keys: str) -> None:
        self.text = ""
        os.write(self.number, keys.encode())

    def end(self) -> int:
        """The rest of what it printed, and its status."""
        while True:
            try:
                chunk = os.read(self.number, 65536)
            except OSError:
                break
            if not chunk:
                break
            self.text += chunk.decode(errors="replace")
        _, status = os.waitpid(self.pid, 0)
        os.close(self.number)
        return os.waitstatus_to_exitcode(status)


@pytest.mark.slow("starts a process on a terminal")
def test_the_live_table_obeys_keys_and_leaves_the_screen(world: World) -> None:
    terminal = _Terminal("top", "--every", "200ms")
    terminal.wait_for("billing")
    assert "\x1b[?1049h" in terminal.text  # the other screen
    terminal.press("l")
    terminal.wait_for("by lag")
    terminal.press("x")  # no key of it
    terminal.press("q")
    assert terminal.end() == 0
    assert "\x1b[?1049l" in terminal.text
    assert "\x1b[?25h" in terminal.text  # the cursor


@pytest.mark.long("starts one more process on a terminal")
def test_a_signal_ends_the_live_table(world: World) -> None:
    terminal = _Terminal("top", "--every", "1h")
    terminal.wait_for("billing")
    os.kill(terminal.pid, signal.SIGTERM)
    assert terminal.end() == 0
    assert "\x1b[?1049l" in terminal.text
