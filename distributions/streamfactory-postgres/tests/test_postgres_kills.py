"""A writer is killed at random moments: every row is there once, in whole epochs."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import streamfactory
from killed_postgres_writer import ROWS

from streamfactory_postgres.changes.harness import PostgresChangesHarness
from streamfactory_postgres.harness import PostgresHarness

ROUNDS = int(os.environ.get("ROUNDS", "4"))
EPOCHS = 12 * ROUNDS
COPIER = Path(__file__).with_name("killed_changes_copier.py")
PROGRAM = Path(__file__).with_name("killed_postgres_writer.py")


def write(properties: Mapping[str, str], delay: float | None) -> bool:
    """Run the writer; kill it ``delay`` seconds after it has begun, if it still runs.

    Returns:
        Whether it was killed.
    """
    given = json.dumps(dict(properties))
    command = [sys.executable, str(PROGRAM), given, str(EPOCHS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        if delay is not None:
            time.sleep(delay)
            process.kill()
        status = process.wait(120)
    assert status in (0, -9)
    return status != 0


def wait_until_decided(client: Any) -> None:
    """The server notices a moment later that a client was killed."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE backend_xid IS NOT NULL"
    deadline = time.monotonic() + 30
    while client.execute(query).fetchone()[0]:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def read(properties: Mapping[str, str]) -> list[int]:
    """All numbers, as a reader of the framework sees them."""
    with streamfactory.open(properties) as stream:
        return [n for batch in stream for n in batch.rows["number"].to_pylist()]


def test_a_writer_that_is_killed_loses_and_repeats_nothing(
    harness: PostgresHarness, client: Any
) -> None:
    draw = random.Random(int(os.environ.get("SEED", "0")))
    properties = harness.properties()
    kills = 0
    for _ in range(ROUNDS):
        kills += write(properties, draw.uniform(0.0, 0.3))
        # Also while an epoch is half written a reader sees whole epochs.
        seen = read(properties)
        assert seen == [*range(len(seen))]
        assert len(seen) % ROWS == 0
    write(properties, None)
    wait_until_decided(client)
    found = Counter(read(properties))
    lost = EPOCHS * ROWS - len(found)
    twice = sum(count - 1 for count in found.values())
    print(f"kills={kills} lost={lost} twice={twice}")
    assert kills > 0
    assert (lost, twice) == (0, 0)
    assert Counter(harness.visible()[0]) == found


def copy(source: Mapping[str, str], target: Mapping[str, str], delay: float) -> None:
    """Run the copier, and kill it ``delay`` seconds after it has begun."""
    command = [sys.executable, str(COPIER), json.dumps(dict(source))]
    with subprocess.Popen(
        [*command, json.dumps(dict(target))], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        time.sleep(delay)
        process.kill()
        process.wait(120)


def test_a_copy_of_changes_that_is_killed_loses_and_repeats_nothing(
    tmp_path: Path,
) -> None:
    """Also what is acknowledged while the copier dies is there once."""
    draw = random.Random(int(os.environ.get("SEED", "0")))
    harness = PostgresChangesHarness(tmp_path)
    harness.create(1)
    source = {**harness.properties(), "batch.rows": "40"}
    target = {
        "streamType": "file",
        "stream.file.topic.name": "copied",
        "stream.file.path": str(tmp_path / "copied"),
    }
    rows = 0
    for _ in range(ROUNDS):
        insert = f"INSERT INTO {harness.topic} SELECT generate_series(%s::int, %s)"
        with harness._server().connect() as client:
            for _ in range(10):  # transactions of some rows
                client.execute(insert, [rows, rows + 49])
                rows += 50
        copy(source, target, draw.uniform(0.0, 1.5))
    streamfactory.copy(source, target, writer_id="copier")
    found = Counter(read(target))
    harness.close()
    lost, twice = rows - len(found), sum(found.values()) - len(found)
    print(f"kills={ROUNDS} lost={lost} twice={twice}")
    assert (lost, twice) == (0, 0)
