"""A receiver is killed at random moments: the spool has every message."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import streamfactory

from streamfactory_mqtt.harness import MqttHarness

ROUNDS = int(os.environ.get("ROUNDS", "6"))
PROGRAM = Path(__file__).with_name("killed_receiver.py")
DEADLINE = 120.0
"""Seconds in which some more rows have to be stored."""
EACH = 20
"""Numbers that are published at once."""


class Publisher:
    """Publishes numbers, a few at a time, until it is stopped."""

    def __init__(self, harness: MqttHarness) -> None:
        self._harness = harness
        self._stopped = threading.Event()
        self.count = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.wait(0.1):
            first = self.count
            self._harness.write(first // EACH % 2, range(first, first + EACH))
            self.count += EACH

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()


def start(properties: dict[str, str]) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, str(PROGRAM), json.dumps(properties)], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


def end(process: subprocess.Popen[bytes]) -> None:
    with process:
        process.kill()


def stored(properties: dict[str, str]) -> Counter[int]:
    """The numbers in the spool."""
    given = {**properties, "spool.receiver": "daemon"}
    with streamfactory.open(given, start="earliest") as stream:
        values = stream.to_reader().read_all()["value"].to_pylist()
    return Counter(int(value) for value in values)


def test_a_receiver_that_is_killed_loses_nothing(tmp_path: Path) -> None:
    draw = random.Random(int(os.environ.get("SEED", "0")))
    harness = MqttHarness(tmp_path)
    harness.create(2)
    properties = {
        **harness.properties(),
        "spool.path": str(tmp_path / "spool"),
        "spool.receiver": "embedded",
        # A receiver starts late on a busy machine.
        "stream.mqtt.connection.timeout.millis": "120s",
    }
    publisher = Publisher(harness)
    try:
        for _ in range(ROUNDS):
            process = start(properties)
            if draw.random() < 0.7:
                assert process.stdout is not None
                assert process.stdout.readline() == b"stored\n"
            time.sleep(draw.uniform(0.0, 0.4))
            end(process)
    finally:
        publisher.stop()
    process, before = start(properties), 0
    deadline = time.monotonic() + DEADLINE
    while len(found := stored(properties)) < publisher.count:
        if len(found) > before:
            before, deadline = len(found), time.monotonic() + DEADLINE
        if time.monotonic() > deadline:
            break
        time.sleep(0.5)
    end(process)
    lost = publisher.count - len(found)
    twice = sum(count - 1 for count in found.values())
    print(f"kills={ROUNDS} lost={lost} twice={twice} rows={publisher.count}")
    # Twice is what was stored, and not yet acknowledged, at a kill: see the README.
    assert lost == 0
    assert set(found) == set(range(publisher.count))
    assert publisher.count > EACH * ROUNDS
    harness.close()
