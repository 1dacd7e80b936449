"""The examples that need a Kafka broker: each does what docs/examples.md shows."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.examples.running import (
    EXAMPLES,
    PATIENCE,
    environment,
    printed,
    run,
    run_without,
    shown,
)
from tests.house import pages

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.kafka.broker import Addresses

FOLDER = EXAMPLES / "kafka_json"
PINOT_AND_HOP = "python examples/pinot_and_hop/read.py"
COPY = "python examples/exactly_once.py"
CHANGES = "python examples/delta_to_kafka.py"


def test_a_copy_that_is_killed_is_exactly_once(
    kafka: Addresses, tmp_path: Path
) -> None:
    said = run(COPY, tmp_path, KAFKA=kafka.bootstrap)
    assert printed(said) == shown(COPY)


def test_a_copy_without_the_client_names_the_package_to_install(tmp_path: Path) -> None:
    output = run_without("confluent_kafka", COPY, tmp_path)
    assert "pip install 'streamfactory[kafka,json]'" in output


def test_changes_of_a_table_are_upserts_and_tombstones(
    kafka: Addresses, tmp_path: Path
) -> None:
    said = run(CHANGES, tmp_path, KAFKA=kafka.bootstrap)
    assert printed(said) == shown(CHANGES)


def test_changes_without_the_table_client_name_the_package_to_install(
    tmp_path: Path,
) -> None:
    output = run_without("deltalake", CHANGES, tmp_path)
    assert "pip install 'streamfactory[delta,kafka,json]'" in output


@pytest.mark.long("a Spark of its own")
@pytest.mark.usefixtures("own_spark")
def test_the_readme_of_dead_letters_does_what_it_shows(
    kafka: Addresses, tmp_path: Path
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(FOLDER, folder)
    before = sorted(folder.rglob("*"))
    found = environment(tmp_path / "tmp", {"KAFKA": kafka.bootstrap})
    ran = 0
    for command, wanted in consoles((FOLDER / "README.md").read_text("utf-8")):
        words = shlex.split(command)
        if words[0] == "export":
            continue
        line = ["sh", "-c", command]
        if words[0] == "streamfactory":
            line = [sys.executable, "-m", *words]
        done = subprocess.run(
            line,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            cwd=folder,
            env=found,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, done.stdout
        assert pages.matches(printed(wanted), printed(done.stdout)), done.stdout
        ran += 1
    assert ran == 10
    assert sorted(folder.rglob("*")) == before, "the README does not clean up"


def consoles(page: str) -> Iterator[tuple[str, str]]:
    """The commands of a page, each with what it shows."""
    for block in pages.blocks(page):
        for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
            command, _, text = part.partition("\n")
            yield command, text


def test_the_files_of_dead_letters_are_valid(tmp_path: Path) -> None:
    streams = ["orders", "raw_orders", "kept_orders", "bad_orders"]
    words = ["validate", "--no-spark", *streams, "configs/pipelines/kept_orders.toml"]
    done = subprocess.run(
        [sys.executable, "-m", "streamfactory", *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=FOLDER,
        env=environment(tmp_path, {"KAFKA": "localhost:9092"}),
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(": ok") == 5, done.stdout


def test_files_of_pinot_and_hop_are_read_as_they_are(
    kafka: Addresses, tmp_path: Path
) -> None:
    said = printed(run(PINOT_AND_HOP, tmp_path, KAFKA=kafka.bootstrap))
    assert pages.matches(shown(PINOT_AND_HOP), said)
    assert "flights" in said[0]
    assert "ok, 3 warnings" in said[0]


def test_the_file_of_pinot_without_the_client_names_the_package_to_install(
    tmp_path: Path,
) -> None:
    output = run_without("confluent_kafka", PINOT_AND_HOP, tmp_path)
    assert "pip install 'streamfactory[kafka]'" in output
