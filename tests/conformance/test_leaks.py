"""What a case left open is found, and what others opened is not taken for it."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from typing import TYPE_CHECKING, Any

import pytest
from tests.conformance.waiting import HASTY

from streamfactory.conformance import Outcome, Subject
from streamfactory.conformance.case import Case
from streamfactory.conformance.leaks import Inventory, take
from streamfactory.conformance.runner import run_case
from streamfactory.conformance.specimens import durable
from streamfactory.conformance.specimens.durable import DurableHarness
from streamfactory.wiring.plugins.manager import PluginManager

if TYPE_CHECKING:
    from collections.abc import Iterator

NOTHING: frozenset[Any] = frozenset()


def test_a_descriptor_that_replaces_one_of_its_kind_is_no_leak() -> None:
    before = Inventory(NOTHING, frozenset({"5 -> socket:[71]", "6 -> /a"}), NOTHING)
    again = Inventory(NOTHING, frozenset({"9 -> socket:[90]", "6 -> /a"}), NOTHING)
    more = Inventory(
        NOTHING, frozenset({"8 -> socket:[90]", "9 -> socket:[91]"}), NOTHING
    )
    other = Inventory(NOTHING, frozenset({"5 -> socket:[71]", "6 -> /b"}), NOTHING)
    assert again.left_since(before, before) == []
    assert more.left_since(before, before) == ["open 9 -> socket:[91]"]
    assert other.left_since(before, before) == ["open 6 -> /b"]


def test_a_thread_that_replaces_one_of_its_kind_is_no_leak() -> None:
    before = Inventory(frozenset({"Thread-1 (run) (11)"}), NOTHING, NOTHING)
    again = Inventory(frozenset({"Thread-2 (run) (12)"}), NOTHING, NOTHING)
    more = Inventory(
        frozenset({"Thread-1 (run) (11)", "Thread-2 (run) (12)"}), NOTHING, NOTHING
    )
    assert again.left_since(before, before) == []
    assert more.left_since(before, before) == ["thread Thread-2 (run) (12)"]


def test_what_an_earlier_run_left_replaces_nothing_when_it_ends() -> None:
    others = Inventory(NOTHING, NOTHING, NOTHING)
    before = Inventory(frozenset({"Thread-1 (run) (11)"}), NOTHING, NOTHING)
    now = Inventory(frozenset({"Thread-2 (run) (12)"}), NOTHING, NOTHING)
    assert now.left_since(before, others) == ["thread Thread-2 (run) (12)"]


def test_a_child_of_a_thread_that_ends_is_counted_all_the_time() -> None:
    for _ in range(100):
        started, over = threading.Event(), threading.Event()
        found: list[subprocess.Popen[bytes]] = []

        def start(
            found: list[subprocess.Popen[bytes]] = found,
            started: threading.Event = started,
            over: threading.Event = over,
        ) -> None:
            found.append(subprocess.Popen(["sleep", "5"]))
            started.set()
            over.wait()

        thread = threading.Thread(target=start)
        thread.start()
        started.wait()
        (child,) = found
        with child:
            over.set()
            # The system moves the child to another thread meanwhile.
            assert all(child.pid in take().children for _ in range(8))
            thread.join()
            child.kill()


@pytest.fixture
def opened() -> Iterator[list[socket.socket]]:
    found: list[socket.socket] = []
    yield found
    for each in found:
        each.close()


@pytest.mark.parametrize(
    ("runs", "outcome"), [(1, Outcome.PASSED), (2, Outcome.FAILED)]
)
def test_a_leak_is_one_that_each_run_of_the_case_leaves(
    opened: list[socket.socket], runs: int, outcome: Outcome
) -> None:
    def body(bench: Any) -> None:
        bench.create()
        if len(opened) < runs:
            opened.append(socket.socket())

    correct = durable.streamfactory_backend()
    plugins = PluginManager()
    plugins.register(durable)
    case = Case("opens_a_socket", "R10", body)
    result = run_case(case, Subject(correct, DurableHarness, plugins, waits=HASTY))
    assert result.outcome is outcome
    left = f"rule R10: left open: open {opened[-1].fileno()} -> "
    assert result.reason.startswith(left) is (outcome is Outcome.FAILED)
    assert len(opened) == runs
    assert os.fstat(opened[0].fileno())
