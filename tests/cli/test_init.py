"""``streamfactory init``: a project that works as it is made."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.proving.ports import free_ports
from tests.proving.skipping import skip_or_fail

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.proving.commands import Outcome


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_what_it_makes_works_as_its_readme_says(
    streamfactory: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = streamfactory("init", "shop", "--json").json
    assert made["folder"] == "shop"
    assert "README.md" in made["files"]
    monkeypatch.chdir("shop")
    readme = Path("README.md").read_text()
    assert set(re.findall(r"^\| `(\S+)` \|", readme, re.MULTILINE)) == {
        name for name in made["files"] if name != "README.md"
    }
    commands = re.findall(r"^    streamfactory (.*)$", readme, re.MULTILINE)
    outcomes = [streamfactory(*command.split()) for command in commands[:3]]
    assert [one.status for one in outcomes] == [0, 0, 0], outcomes
    assert outcomes[-1].out.splitlines()[-1].split()[1] == "tom"
    again = streamfactory("publish", "orders", "orders.csv", "--writer", "shop")
    assert "orders: 0 rows in 0 epochs" in again.out


@pytest.mark.long("starts Spark's Java")
@pytest.mark.usefixtures("own_spark")
def test_its_pipeline_is_valid_and_passes_its_test(
    program: Callable[..., Outcome],
) -> None:
    # In a process of its own: the shared session cannot use a Java that runs already.
    assert program("init").status == 0
    outcome = program("validate", "configs/pipelines/spent.toml")
    assert outcome.status == 0, outcome
    outcome = program("test")
    assert outcome.status == 0, outcome
    assert outcome.out.endswith("1 test: 1 passed\n")


def test_existing_files_are_not_overwritten(
    streamfactory: Callable[..., Outcome], folder: Path
) -> None:
    Path("orders.csv").write_text("mine\n")
    outcome = streamfactory("init")
    assert outcome.status == 2
    assert "orders.csv: there already, and nothing is overwritten." in outcome.err
    assert [path.name for path in folder.iterdir()] == ["orders.csv"]
    assert Path("orders.csv").read_text() == "mine\n"


def test_with_kafka_it_says_how_a_broker_starts_with_what_is_here(
    streamfactory: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = {"java", "mvn"}
    monkeypatch.setattr(shutil, "which", lambda name: name if name in here else None)
    lines = streamfactory("init", "shop", "--kafka").out.splitlines()
    assert "  sh broker/start.sh" in lines
    assert "  docker compose up -d    (not here: docker not found)" in lines
    monkeypatch.chdir("shop")
    properties = Path("broker/server.properties").read_text()
    assert "//0.0.0.0" not in properties
    assert "//:" not in properties
    # What the configured stream connects to is where the broker listens.
    stream = Path("configs/streams/orders_kafka.toml").read_text()
    assert "listeners=PLAINTEXT://127.0.0.1:9092," in properties
    assert "localhost:9092" in stream


@pytest.mark.long("runs a broker that Maven fetches")
def test_its_broker_takes_the_orders(
    program: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    if missing := [name for name in ("java", "mvn") if shutil.which(name) is None]:
        skip_or_fail(f"the broker of the starter needs {' and '.join(missing)}")
    assert program("init", "--kafka").status == 0
    first = free_ports(2)
    properties = Path("broker/server.properties")
    text = properties.read_text().replace("9092", str(first))
    properties.write_text(text.replace("9093", str(first + 1)))
    broker = subprocess.Popen(["sh", "broker/start.sh"], start_new_session=True)
    try:
        at = ("--set", f"stream.kafka.broker.list=127.0.0.1:{first}")
        deadline = time.monotonic() + 240
        while not listens(first):
            assert broker.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.2)
        outcome = program("publish", "orders_kafka", "orders.csv", *at)
        assert outcome.status == 0, outcome
        outcome = program("tail", "orders_kafka", "--no-follow", "--json", *at)
        assert len(outcome.out.splitlines()) == 6, outcome
    finally:
        os.killpg(broker.pid, signal.SIGTERM)
        broker.wait(60)


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_folder_that_cannot_be_made_is_named(
    streamfactory: Callable[..., Outcome],
) -> None:
    Path("taken").write_text("")
    outcome = streamfactory("init", "taken/shop")
    assert outcome.status == 2
    assert "taken/shop" in outcome.err
