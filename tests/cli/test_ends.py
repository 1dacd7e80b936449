"""How a command ends that is interrupted, or whose output goes nowhere or is narrow."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.cli.conftest import path_with
from tests.proving.commands import Outcome
from tests.proving.tiers import sample

from streamfactory.cli.results import table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SCRIPT = "import sys; from streamfactory.cli.main import main; sys.exit(main())"
ENDS = [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]


def start(tmp_path: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path_with(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def signalled(child: subprocess.Popen[str], marker: Path, number: int) -> Outcome:
    """What becomes of a child that is signalled once it has come to a place."""
    deadline = time.monotonic() + 60
    while not marker.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    child.send_signal(number)
    out, err = child.communicate(timeout=60)
    return Outcome(child.returncode, out, err)


@pytest.mark.usefixtures("executed")
@pytest.mark.parametrize(("number", "status", "word"), ENDS)
@pytest.mark.parametrize("words", [["-m", "streamfactory"], ["-c", SCRIPT]])
def test_signal_while_the_program_is_imported_is_one_line(
    words: list[str], number: int, status: int, word: str, tmp_path: Path
) -> None:
    marker = tmp_path / "here"
    (tmp_path / "click").mkdir()
    (tmp_path / "click" / "__init__.py").write_text(
        f"import time; open({str(marker)!r}, 'w').close(); time.sleep(60)"
    )
    with start(tmp_path, *words, "list") as child:
        ended = signalled(child, marker, number)
    assert (ended.status, ended.out, ended.err) == (
        status,
        "",
        f"error: [interrupted] {word}\n",
    )


@pytest.mark.parametrize("command", ["schema", "tail"])
@pytest.mark.parametrize(("number", "status", "word"), ENDS)
def test_signal_while_a_command_works_is_one_line(
    number: int,
    status: int,
    word: str,
    command: str,
    stranger: Callable[..., Path],
    tmp_path: Path,
) -> None:
    marker = tmp_path / "here"
    path = stranger(constructor=f"open({str(marker)!r}, 'w').close(); time.sleep(60)")
    line = (command, str(path), "--allow-class-paths")
    with start(tmp_path, "-m", "streamfactory", *line) as child:
        ended = signalled(child, marker, number)
    assert (ended.status, ended.out) == (status, "")
    assert ended.err.strip() == f"error: [interrupted] {word}"


def test_ignored_signal_stays_ignored(tmp_path: Path) -> None:
    code = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); {SCRIPT}"
    code = code.replace("main()", "(main, signal.raise_signal(signal.SIGINT))[0]()")
    with start(tmp_path, "-c", code, "list") as child:
        _, err = child.communicate(timeout=60)
    assert (child.returncode, err) == (0, "")


@pytest.mark.parametrize(
    "words",
    sample(
        [
            ["tail", "clicks.toml", "--from", "earliest", "--no-follow"],
            ["--help"],
            ["list", "--json"],
            ["list"],
            ["describe", "file"],
            ["validate", "clicks.toml"],
            ["schema", "clicks.toml"],
            ["topics", "list", "clicks.toml"],
            ["topics", "show", "clicks.toml"],
        ],
        "one more command",
        keep=3,
    ),
    ids=" ".join,
)
def test_closed_reader_of_the_output_is_no_failure(
    words: list[str], numbers: Path, tmp_path: Path
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "streamfactory", *words],
        cwd=tmp_path,
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writing)
    assert numbers.name == "clicks.toml"
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture
def numbers(tmp_path: Path, program: Callable[..., Outcome]) -> Path:
    """A stream of a file, with some rows."""
    path = tmp_path / "clicks.toml"
    path.write_text(
        "[properties]\nstreamType = 'file'\n'stream.file.path' = 'streams'\n"
        "'stream.file.topic.name' = 'clicks'\n"
    )
    rows = tmp_path / "rows.csv"
    rows.write_text("user\nann\n")
    done = program("publish", str(path), str(rows))
    assert done.status == 0, done.err
    return path


@pytest.mark.parametrize("encoding", ["latin-1", "utf-8"])
def test_any_encoding_of_the_terminal_will_do(
    encoding: str, program: Callable[..., Outcome]
) -> None:
    name = "\u20ac-\U0001f600"
    known = {"PYTHONIOENCODING": encoding}
    plain = program("validate", name, **known)
    assert (plain.status, plain.err) == (2, "")
    shown = name if encoding == "utf-8" else r"\u20ac-\ud83d\ude00"
    assert shown in plain.out
    as_json = program("validate", name, "--json", **known)
    assert (as_json.status, as_json.json["streams"][0]["stream"]) == (2, name)


def test_line_break_in_a_cell_breaks_no_table() -> None:
    lines = [*table([("NAME", "WHAT"), ("a\nb", "c\x1b[2Jd"), ("x", "y\r\n")])]
    assert lines == ["NAME  WHAT", r"a\nb  c\x1b[2Jd", r"x     y\r\n"]


@pytest.mark.parametrize(
    "words",
    sample(
        [
            ["publish", "clicks.toml", "missing.csv"],
            ["publish", "clicks.toml", "streams", "--format", "csv"],
            ["publish", "missing.toml", "rows.csv"],
            ["copy", "missing.toml", "clicks.toml"],
            ["tail", "missing.toml"],
            ["schema", "missing.toml"],
            ["run", "missing.toml"],
            ["checkpoint", "show", "missing"],
            ["checkpoint", "show", "missing.toml"],
            ["topics", "create", "clicks.toml", "--schema-from", "missing.arrow"],
        ],
        "one more command",
        keep=5,
    ),
    ids=" ".join,
)
def test_missing_input_is_bad_input(
    words: list[str], numbers: Path, program: Callable[..., Outcome]
) -> None:
    assert numbers.exists()
    outcome = program(*words, "--json")
    assert outcome.status == 2, outcome.err
    assert outcome.error["error"] != "usage"
    assert json.loads(outcome.err.splitlines()[-1])["class"] == "config"


BLOCKED = """
import ctypes

c, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(64)
c.pthread_mutex_lock(mutex)


def block():
    c.pthread_mutex_lock(mutex)
"""
"""No signal interrupts this call, as those of clients that are written in C."""


@pytest.mark.parametrize(("number", "status", "word"), ENDS)
def test_signal_ends_a_command_that_is_blocked_in_c(
    number: int,
    status: int,
    word: str,
    stranger: Callable[..., Path],
    tmp_path: Path,
) -> None:
    marker = tmp_path / "here"
    (tmp_path / "blocked.py").write_text(BLOCKED)
    block = f"import blocked; open({str(marker)!r}, 'w').close(); blocked.block()"
    path = stranger(constructor=block)
    line = ("schema", str(path), "--allow-class-paths")
    with start(tmp_path, "-m", "streamfactory", *line) as child:
        ended = signalled(child, marker, number)
    assert (ended.status, ended.out) == (status, "")
    assert ended.err.strip() == f"error: [interrupted] {word}"


@pytest.fixture
def silent(tmp_path: Path) -> Iterator[threading.Event]:
    """A broker that accepts connections, and never answers: set once it has one.

    The streams ``silent.toml`` and ``other.toml`` are topics of it.
    """
    connected = threading.Event()
    kept = []

    def accept() -> None:
        with suppress(OSError):  # closed
            while True:
                kept.append(server.accept()[0])
                connected.set()

    with socket.create_server(("127.0.0.1", 0)) as server, ExitStack() as stack:
        for name in ("silent", "other"):
            (tmp_path / f"{name}.toml").write_text(
                f"""name = "{name}"
[properties]
streamType = "kafka"
"stream.kafka.topic.name" = "{name}"
"stream.kafka.broker.list" = "127.0.0.1:{server.getsockname()[1]}"
"stream.kafka.decoder.class.name" = "json"
"stream.kafka.connection.timeout.millis" = "600s"
schema = "id bigint"
"""
            )
        (tmp_path / "rows.csv").write_text("id\n1\n")
        thread = threading.Thread(target=accept)
        thread.start()
        stack.callback(thread.join)
        stack.callback(server.shutdown, socket.SHUT_RDWR)
        yield connected
        for one in kept:
            one.close()


@pytest.mark.parametrize(
    "words",
    sample(
        [
            ["tail", "silent.toml"],
            ["lag", "silent.toml"],
            ["publish", "silent.toml", "rows.csv"],
            ["check", "silent.toml"],
            ["copy", "silent.toml", "other.toml", "--writer", "w"],
            ["doctor", "silent.toml"],
            ["offsets", "show", "silent.toml"],
            ["offsets", "reset", "silent.toml", "--group", "g", "--to", "earliest"],
            ["topics", "list", "silent.toml"],
            ["topics", "show", "silent.toml"],
            ["topics", "create", "silent.toml"],
            ["topics", "export", "silent.toml", "rows.parquet"],
            ["topics", "delete", "silent.toml", "--yes"],
        ],
        "one more command",
        keep=3,
    ),
    ids=" ".join,
)
def test_first_signal_ends_each_command_that_waits_for_a_server(
    words: list[str], silent: threading.Event, tmp_path: Path
) -> None:
    with start(tmp_path, "-m", "streamfactory", *words) as child:
        while not silent.wait(0.05):
            assert child.poll() is None, child.communicate()
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=30)
    assert child.returncode == 130, (out, err)
    assert "Traceback" not in err
    assert "internal" not in err


def test_commands_end_with_the_statuses_of_the_page(
    streamfactory: Callable[..., Outcome], numbers: Path, tmp_path: Path
) -> None:
    page = Path(__file__).parents[2] / "docs" / "command-line.md"
    table = page.read_text("utf-8").split("<!-- generated: statuses -->")[1]
    documented = set(
        map(int, re.findall(r"^\| (\d+) \|", table.split("<!--")[0], re.MULTILINE))
    )
    signals = {status for _, status, _ in ENDS}  # see the tests above
    found = {
        0: streamfactory("schema", str(numbers)),
        1: streamfactory("tail", str(numbers), "--set", "stream.file.topic.name=none"),
        2: streamfactory("validate", str(tmp_path / "none.toml")),
        3: streamfactory("describe", "none"),
    }
    assert {status: one.status for status, one in found.items()} == {
        status: status for status in documented - signals
    }, found
