"""Look-ups that are slow, that fail, that never return, and that are many."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from streamfactory.spi import ConnectionFailed
from streamfactory.ui import lookups as module
from streamfactory.ui.lookups import Lookups

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_an_answer_is_used_again_while_it_is_fresh() -> None:
    found = Lookups(wait=60, fresh=60)
    calls: list[int] = []

    def count() -> str:
        calls.append(1)
        return "value"

    for _ in range(3):
        answer = found.ask("key", count)
        assert (answer.value, answer.error, answer.pending) == ("value", None, False)
    assert len(calls) == 1
    found.forget(["key", "unknown"])
    found.ask("key", count)
    assert len(calls) == 2


def test_an_error_is_shown_beside_what_was_known() -> None:
    found = Lookups(wait=60, fresh=0)
    found.ask("key", lambda: "old")

    def fail() -> None:
        msg = "refused"
        raise ConnectionFailed(msg, stream="s")

    answer = found.ask("key", fail)
    assert answer.value == "old"
    assert answer.error is not None
    assert answer.error["error"] == "connection_failed"


def test_a_defect_is_shown_by_its_type_alone() -> None:
    known: dict[str, str] = {}
    answer = Lookups(wait=60).ask("key", lambda: known["secret"])
    assert answer.error is not None
    assert answer.error["what"] == "KeyError"


def test_one_that_never_returns_delays_no_other_and_becomes_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MOST_THREADS", 2)
    found, end = Lookups(wait=0.01, fresh=60), threading.Event()
    try:
        for key in ("a", "b"):
            assert found.ask(key, end.wait).pending
        assert found.ask("c", lambda: "value").pending  # both threads are occupied
        monkeypatch.setattr(module, "OVERDUE", 0.0)
        until(lambda: found.ask("c", lambda: "value").value == "value")
        late = found.ask("a", end.wait)
        assert late.error is not None
        assert late.error["error"] == "timeout"
        assert not late.pending
    finally:
        end.set()


def test_a_key_is_looked_up_once_at_a_time() -> None:
    found, end = Lookups(wait=0.01, fresh=0), threading.Event()
    running: list[int] = []

    def wait() -> Any:
        running.append(1)
        end.wait(60)
        return "value"

    for _ in range(5):
        assert found.ask("key", wait).pending
    assert len(running) == 1
    end.set()
    until(lambda: found.ask("key", wait).value == "value")


def test_of_many_look_ups_none_starves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_THREADS", 2)
    found = Lookups(wait=0.01, fresh=0)  # what was looked up is stale at once

    def slow(key: int) -> int:
        time.sleep(0.001)
        return key

    functions = {key: (lambda key=key: slow(key)) for key in range(200)}
    until(
        lambda: all(one.value is not None for one in found.ask_all(functions).values())
    )


def test_what_a_page_asks_for_comes_before_the_history(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MOST_THREADS", 1)
    found, go = Lookups(wait=60, fresh=60), threading.Event()
    order: list[str] = []
    found.ask_all({"first": lambda: go.wait(60)}, later=True)
    history = {f"old {n}": (lambda n=n: order.append(f"old {n}")) for n in range(5)}
    found.ask_all(history, later=True)
    timer = threading.Timer(0.1, go.set)
    timer.start()
    page = {"page": lambda: order.append("page"), "old 4": history["old 4"]}
    found.ask_all(page)
    timer.join()
    assert order[:2] == ["page", "old 4"]
    until(lambda: len(order) == 6)


def test_look_ups_that_never_return_occupy_a_bounded_number_of_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MOST_OVERDUE", 6)
    monkeypatch.setattr(module, "OVERDUE", 0.0)
    found, end, running = Lookups(wait=0.0, fresh=60), threading.Event(), [0]

    def hang() -> None:
        running[0] += 1
        end.wait(60)

    try:
        answer = [found.ask(key, hang) for key in range(20)][-1]
        assert answer.error is not None
        assert "too many look-ups" in answer.error["what"]
        until(lambda: running[0] >= 6)
        assert running[0] == 6
        assert not found._soon
    finally:
        end.set()
    until(lambda: found.ask("another", lambda: "value").value == "value")


def test_large_answers_are_fewer() -> None:
    found = Lookups(wait=60)
    for key in range(200):
        found.ask(("small", key), lambda: 1)
        found.ask(key, lambda: "large", large=True)
    assert (len(found._entries), len(found._large)) == (200, 100)


def test_answers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_ANSWERS", 10)
    found = Lookups(wait=60)
    for key in range(100):
        found.ask(key, lambda: 1)
    assert len(found._entries) == 10


def test_an_answer_that_is_old_is_pending(monkeypatch: pytest.MonkeyPatch) -> None:
    found, end = Lookups(wait=60, fresh=0), threading.Event()
    found.ask("key", lambda: "value")
    found._wait = 0.01
    try:
        assert not found.ask("key", end.wait).pending  # just looked up
        monkeypatch.setattr(module, "OLD", 0.0)
        assert found.ask("key", end.wait).pending
    finally:
        end.set()
