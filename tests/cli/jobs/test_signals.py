"""SIGINT and SIGTERM: the open epoch is committed, and nothing is lost or doubled."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from tests.proving.tiers import sample

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.jobs.conftest import Place
    from tests.proving.commands import Outcome

    Start = Callable[..., subprocess.Popen[str]]

pytestmark = pytest.mark.slow("starts commands, and signals them")

LONG = "realtime.segment.flush.threshold.time=1h"
SHORT = "realtime.segment.flush.threshold.time=20ms"
SIGNALS = sample([signal.SIGTERM, signal.SIGINT], "one more signal")


def finish(child: subprocess.Popen[str]) -> tuple[int, str, str]:
    child.wait(120)  # before its input is closed, which would be an end as well
    out, err = child.communicate(timeout=300)
    return child.returncode, out, err


def wait_until_here(child: subprocess.Popen[str]) -> None:
    """Until the child says that it passes the point."""
    assert child.stderr is not None
    while child.stderr.readline() != "here\n":
        assert child.poll() is None


@pytest.mark.parametrize("number", SIGNALS)
def test_publish_finishes_the_epoch(
    number: signal.Signals, place: Place, start: Start, program: Callable[..., Outcome]
) -> None:
    line = ("publish", place.stream("t"), "-", "--format", "csv", "--writer", "w")
    crash = {"point": "after a write", "count": 1, "then": "say"}
    child = start(*line, "--json", "--set", LONG, crash=crash)
    assert child.stdin is not None
    child.stdin.write("number\n1\n2\n")
    child.stdin.flush()
    wait_until_here(child)
    child.send_signal(number)
    status, out, err = finish(child)
    assert status == 130, err
    answer = json.loads(out)
    assert answer["complete"] is False
    assert place.numbers("t") == [[1, 2]]
    assert program(*line, text="number\n1\n2\n3\n").status == 0
    assert place.numbers("t") == [[1, 2, 3]]


@pytest.mark.parametrize("number", SIGNALS)
def test_copy_that_follows_ends_well(
    number: signal.Signals, place: Place, start: Start, program: Callable[..., Outcome]
) -> None:
    source, sink = place.stream("from"), place.stream("to")
    place.write("from", range(100))
    child = start("copy", source, sink, "--follow", "--json", "--to-set", SHORT)
    wait_until(lambda: copied(place, 100))
    place.write("from", range(100, 150))
    wait_until(lambda: copied(place, 150))
    child.send_signal(number)
    status, out, err = finish(child)
    assert status == 0, err
    assert json.loads(out)["rows"] == 150
    place.write("from", range(150, 160))
    assert program("copy", source, sink).status == 0
    assert place.numbers("to") == [list(range(160))]


def test_second_signal_stops_at_once(
    place: Place, start: Start, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text("number\n1\n")
    line = ("publish", place.stream("t"), "a.csv", "--writer", "w")
    child = start(*line, crash={"point": "before a write", "count": 1, "then": "hang"})
    wait_until_here(child)
    child.send_signal(signal.SIGTERM)
    child.send_signal(signal.SIGINT)
    status, _, err = finish(child)
    # Which of two signals is the second is up to the system if both are pending.
    assert (status, err) in (
        (130, "\nerror: [interrupted] interrupted\n"),
        (143, "\nerror: [interrupted] terminated\n"),
    )


def copied(place: Place, count: int) -> bool:
    try:
        return sum(len(partition) for partition in place.numbers("to")) == count
    except LookupError:
        return False


def wait_until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.02)


HIDDEN = """
import signal, sys, threading, time
from streamfactory.cli.draining import draining

def take_signals():
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    time.sleep(120)

signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
threading.Thread(target=take_signals, daemon=True).start()
with draining() as stop:
    print("here", file=sys.stderr, flush=True)
    stop.wait()
"""


def test_a_signal_that_another_thread_gets_ends_a_wait_of_the_main_thread() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", HIDDEN], stderr=subprocess.PIPE, text=True
    )
    with child:
        try:
            wait_until_here(child)
            child.send_signal(signal.SIGTERM)
            assert child.wait(60) == 0
        finally:
            child.kill()
