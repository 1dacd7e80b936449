"""``streamfactory spool``: receivers as a service."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.proving.commands import command_of
from tests.proving.ports import free_port
from tests.spool.receiving import DEADLINE

import streamfactory
from streamfactory.cli.results import count
from streamfactory.spi import TopicNotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.proving.commands import Outcome

SCHEMA = pa.schema([("number", pa.int64())])


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    return command_of(capsys)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts the command in a process of its own."""
    started: list[subprocess.Popen[str]] = []

    def start(*words: object) -> subprocess.Popen[str]:
        line = [sys.executable, "-m", "streamfactory", "spool", *map(str, words)]
        started.append(
            subprocess.Popen(
                line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
        )
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def stream(folder: Path, name: str, **options: str) -> tuple[Path, int]:
    """The file of a stream that listens, and its port."""
    port = free_port()
    properties = {
        "streamType": "socket",
        "stream.socket.topic.name": name,
        "stream.socket.listen": f"127.0.0.1:{port}",
        "spool.path": str(folder / name),
        "spool.fsync": "never",
        **{key.replace("__", "."): text for key, text in options.items()},
    }
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"name": name, "properties": properties}))
    return path, port


def send(port: int, numbers: range, schema: pa.Schema = SCHEMA) -> None:
    """A program of plain pyarrow."""
    deadline = time.monotonic() + DEADLINE
    connection = None
    while connection is None:
        try:
            connection = socket.create_connection(("127.0.0.1", port), timeout=5)
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    column = pa.array(numbers, schema.field(0).type)
    with (
        connection,
        connection.makefile("wb") as file,
        pa.ipc.new_stream(file, schema) as writer,
    ):
        writer.write_batch(pa.record_batch([column], schema=schema))


def rows(path: Path) -> list[Any]:
    properties = json.loads(path.read_text())["properties"]
    try:
        with streamfactory.open(properties) as found:
            table = found.to_reader().read_all()
    except TopicNotFound:
        return []
    return list(table["number"].to_pylist())


def until(condition: Callable[[], object], shown: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, shown()
        time.sleep(0.02)


@pytest.mark.slow("starts the command, and kills it")
def test_several_streams_are_received_until_a_signal_and_after_a_kill(
    tmp_path: Path, service: Callable[..., subprocess.Popen[str]]
) -> None:
    (first, one), (second, two) = stream(tmp_path, "one"), stream(tmp_path, "two")
    place = tmp_path / "statistics.json"
    line = (first, second, "--every", "20ms", "--statistics", place)
    process = service(*line)
    send(one, range(10))
    send(two, range(20))
    until(lambda: len(rows(first)) == 10 and len(rows(second)) == 20, lambda: "")
    process.kill()
    process.wait()
    process = service("--json", *line)
    send(one, range(10, 15))
    until(lambda: rows(first) == [*range(15)], lambda: rows(first))

    def received() -> Any:
        found = json.loads(place.read_text()) if place.exists() else []
        return [p["rows"] for one in found for p in one["partitions"]]

    until(lambda: received()[:1] == [5], received)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    [report, other] = json.loads(out)["streams"]
    assert (report["stream"], other["stream"]) == ("one", "two")
    assert report["partitions"][0]["state"] == "stopped"
    assert report["partitions"][0]["rows"] == 5
    assert "at-most-once until received, exactly-once from there" in err


def test_a_stream_without_a_spool_is_refused(
    tmp_path: Path, command: Callable[..., Outcome]
) -> None:
    path, _ = stream(tmp_path, "one")
    plain = json.loads(path.read_text())
    del plain["properties"]["spool.path"], plain["properties"]["spool.fsync"]
    path.write_text(json.dumps(plain))
    done = command("spool", path)
    assert done.status == 2
    assert "the stream has no spool" in done.err


def test_options_of_a_spool_without_a_path_have_no_effect(
    tmp_path: Path, command: Callable[..., Outcome]
) -> None:
    path, _ = stream(tmp_path, "one")
    plain = json.loads(path.read_text())
    del plain["properties"]["spool.path"]
    path.write_text(json.dumps(plain))
    done = command("validate", path)
    assert "has no effect without spool.path" in done.out + done.err


def test_a_type_that_forgets_is_described_with_a_spool(
    command: Callable[..., Outcome],
) -> None:
    guarantee = "at-most-once until received, exactly-once from there (spool.path)"
    assert guarantee in command("describe", "socket").out
    assert "spool.path)" not in command("describe", "memory").out


def test_check_explains_the_guarantee_of_transport_and_spool(
    tmp_path: Path,
    command: Callable[..., Outcome],
    service: Callable[..., subprocess.Popen[str]],
) -> None:
    path, port = stream(tmp_path, "one")
    service(path)
    send(port, range(10))
    until(lambda: len(rows(path)) == 10, lambda: rows(path))
    done = command("check", path)
    assert done.status == 0, done.out
    assert "at-most-once until received, exactly-once from there" in done.out
    assert "1 row of one-0 from offset 0" in done.out


@pytest.mark.parametrize(
    ("number", "words"), [(0, "0 losses"), (1, "1 loss"), (2, "2 losses")]
)
def test_losses_are_counted_in_words(number: int, words: str) -> None:
    assert count(number, "loss") == words
