"""A writer is killed at random moments: every row is there once, in whole epochs."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import streamfactory
from killed_redis_writer import ROWS

from streamfactory_redis.harness import RedisHarness

ROUNDS = int(os.environ.get("ROUNDS", "6"))
EPOCHS = 12 * ROUNDS
PROGRAM = Path(__file__).with_name("killed_redis_writer.py")


def write(properties: dict[str, str], delay: float | None) -> bool:
    """Run the writer; kill it ``delay`` seconds after it has begun, if it still runs.

    Returns:
        Whether it was killed.
    """
    command = [sys.executable, str(PROGRAM), json.dumps(properties), str(EPOCHS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        if delay is not None:
            time.sleep(delay)
            process.kill()
        status = process.wait(120)
    assert status in (0, -9)
    return status != 0


def read(properties: dict[str, str]) -> list[int]:
    """All numbers, as a reader of the framework sees them."""
    with streamfactory.open(properties) as stream:
        return sorted(
            int(v) for batch in stream for v in batch.rows["value"].to_pylist()
        )


def test_a_writer_that_is_killed_loses_and_repeats_nothing(tmp_path: Path) -> None:
    draw = random.Random(int(os.environ.get("SEED", "0")))
    harness = RedisHarness(tmp_path)
    harness.create(2)
    properties = dict(harness.properties())
    kills = 0
    for _ in range(ROUNDS):
        kills += write(properties, draw.uniform(0.0, 0.12))
        # Also while an epoch is half placed a reader sees whole epochs, from the first.
        seen = read(properties)
        assert seen == list(range(len(seen)))
        assert len(seen) % ROWS == 0
    write(properties, None)
    found = Counter(read(properties))
    lost = EPOCHS * ROWS - len(found)
    twice = sum(count - 1 for count in found.values())
    print(f"kills={kills} lost={lost} twice={twice}")
    assert kills > 0
    assert (lost, twice) == (0, 0)
    assert (
        Counter(n for partition in harness.visible().values() for n in partition)
        == found
    )
    harness.close()
