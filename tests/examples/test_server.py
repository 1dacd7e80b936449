"""The systemd unit and the container file: their commands run, stop and are healthy."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from tests.certificates import issue_certificates
from tests.proving.skipping import skip_or_fail

import streamfactory
from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

SERVER = Path(__file__).parents[2] / "examples/server"
UNIT = SERVER / "streamfactory.service"
DEADLINE = 120.0


def setting(name: str) -> str:
    """The only value of a setting of the unit."""
    (found,) = re.findall(rf"^{name}=(.*)$", UNIT.read_text(), re.MULTILINE)
    return str(found)


def words(instruction: str) -> list[str]:
    """The words of an instruction of the container file, in its JSON form."""
    text = (SERVER / "Containerfile").read_text()
    (found,) = re.findall(rf"^{instruction}[^[\n]*(\[.*\])$", text, re.MULTILINE)
    return [str(word) for word in json.loads(found)]


def replaced(given: Sequence[str], places: Mapping[str, str]) -> list[str]:
    """Words with other places: each of them stands somewhere."""
    text = "\0".join(given)
    for old, new in places.items():
        assert old in text, old
        text = text.replace(old, new)
    return text.split("\0")


@contextmanager
def running(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """A server by its command line; where it listens, and its metrics."""
    process = subprocess.Popen(
        [sys.executable, "-m", "streamfactory", *arguments],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        listening = process.stdout.readline().removeprefix("flight: listening on ")
        metrics = process.stdout.readline().removeprefix("metrics: ")
        yield listening.strip(), metrics.strip()
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE) == 0
    finally:
        process.kill()
        process.communicate()


def write(location: str, **options: str) -> None:
    properties = {
        "streamType": "flight",
        "stream.flight.location": location,
        "stream.flight.topic.name": "clicks",
        **{f"stream.flight.{k.replace('_', '.')}": v for k, v in options.items()},
    }
    with open_sink(properties) as sink:
        sink.put(pa.table({"id": [1, 2]}), writer_id="w", epoch=0)
    with streamfactory.open(properties) as opened:
        assert opened.to_reader().read_all().num_rows == 2


def healthy(metrics: str) -> None:
    """Run the health check of the container file against a server."""
    port = metrics.removesuffix("/metrics").rpartition(":")[2]
    python, *rest = replaced(words("HEALTHCHECK"), {":9815/": f":{port}/"})
    assert python == "python"
    subprocess.run([sys.executable, *rest], check=True, timeout=DEADLINE)


def test_the_command_of_the_unit_serves_until_systemd_stops_it(tmp_path: Path) -> None:
    program, *arguments = shlex.split(setting("ExecStart"))
    assert Path(program).name == "streamfactory"
    state = f"/var/lib/{setting('StateDirectory')}"
    places = {state: str(tmp_path), ":8815": ":0", ":9815": ":0"}
    with running(replaced(arguments, places)) as (location, metrics):
        write(location)
        healthy(metrics)
    assert setting("KillSignal") == "SIGTERM"


def test_the_command_of_the_container_serves_over_tls(tmp_path: Path) -> None:
    issue_certificates(tmp_path)
    (tmp_path / "server.pem").rename(tmp_path / "tls.crt")
    (tmp_path / "server.key").rename(tmp_path / "tls.key")
    assert words("ENTRYPOINT") == ["streamfactory"]
    places = {
        "/run/tls": str(tmp_path),
        "/data": str(tmp_path / "data"),
        ":8815": ":0",
        ":9815": ":0",
    }
    with running(replaced(words("CMD"), places)) as (location, metrics):
        port = location.rpartition(":")[2]
        assert location == f"grpc+tls://0.0.0.0:{port}"
        write(f"grpc+tls://127.0.0.1:{port}", tls_ca=str(tmp_path / "ca.pem"))
        healthy(metrics)


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        skip_or_fail("no systemd-analyze on this machine")
    program = shlex.split(setting("ExecStart"))[0]
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace(program, sys.executable))
    done = subprocess.run(
        [analyze, "verify", str(unit)], capture_output=True, text=True, check=False
    )
    assert not done.stderr
    assert done.returncode == 0
