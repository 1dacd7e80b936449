"""Files that change while their pipeline runs: noticed, shown, and run where asked."""

from __future__ import annotations

import json
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from tests.pipelines.test_rowwise_commands import command
from tests.pipelines.test_rowwise_pipelines import (
    SINKS,
    STEPS,
    filled,
    folder,
    ids,
    made,
    put,
)

from streamfactory.spark.checkpoints import Place
from streamfactory.spark.checkpoints.holding import LOCK, hold, note, noted
from streamfactory.spark.pipelines import watching
from streamfactory.spark.pipelines.overriding import Overrides
from streamfactory.spark.pipelines.rowwise.running import run_rowwise
from streamfactory.spark.pipelines.watching import noted_changes, run_watched
from streamfactory.wiring.config.catalogue import Catalogue
from streamfactory.wiring.metrics.snapshot import metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.pipelines.conftest import Works
    from tests.pipelines.test_rowwise_commands import Command

    from streamfactory.spark.pipelines.outcomes import Outcome

__all__ = ["command", "folder"]

SECRET = "hunter2-in-the-clear"
OVER = Overrides(pace="continuous")


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "LOOK", 0.05)


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


@contextmanager
def running(works: Works, path: Path, *, restart: bool) -> Iterator[list[Outcome]]:
    """A pipeline while it runs; its outcome is there behind the block."""
    stop = threading.Event()
    found: list[Outcome] = []

    def run() -> None:
        found.extend(
            run_watched(
                [path],
                OVER,
                stop,
                lambda halt: run_rowwise([path], OVER, halt, works.batches.append),
                (lambda: None) if restart else None,
            )
        )

    thread = threading.Thread(target=run)
    thread.start()
    try:
        until(lambda: works.batches, "the first batch")
        yield found
    finally:
        stop.set()
        thread.join(60)
    assert not thread.is_alive()


def changes(path: Path) -> tuple[str, ...]:
    return noted_changes(path, Catalogue())


def marked() -> set[float]:
    """What the metric says of the pipelines that run."""
    return {one.value for one in metrics().select("pipeline.changed")}


def replaced(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_a_changed_file_is_named_without_its_values(
    folder: Works, command: Command, caplog: pytest.LogCaptureFixture
) -> None:
    filled(folder)
    path = made(folder, STEPS + SINKS)
    before = path.read_text()
    with running(folder, path, restart=False) as outcomes:
        assert changes(path) == ()
        assert marked() == {0.0}
        replaced(path, "id % 2 = 0", f"id % 2 = 1 and '{SECRET}' <> ''")
        until(lambda: changes(path), "the change")
        assert changes(path) == (f"{path}: steps.even.sql",)
        shown = command("lag", path)
        line = f"{path}: changed since its run began: {path}: steps.even.sql"
        assert line in shown.out.splitlines()
        (found,) = command("lag", path, "--json").json["changed"]
        assert found["changes"] == list(changes(path))
        assert marked() == {1.0}
        path.write_text(before)
        until(lambda: not changes(path), "the end of the change")
        path.write_text("[source")
        until(lambda: "cannot be read" in caplog.text, "the broken file")
        path.write_text(before + "# a comment\n")
        until(lambda: caplog.text.count("as they were") == 2, "the comment")
        stream = folder.folder / "configs" / "streams" / "even.json"
        stream.write_text("{")
        broken = "stream even: is not used any more, or cannot be read"
        until(lambda: broken in caplog.text, "the broken stream")
        folder.topic("even", options={"batch.rows": "17"})
        until(lambda: changes(path) not in ((), (broken,)), "the changed stream")
    (outcome,) = outcomes
    assert outcome.changes == ("stream even: batch.rows (new)",)
    assert changes(path) == ()  # no run is left that it would be about
    assert SECRET not in caplog.text
    assert ids(folder, "even") == [*range(0, 20, 2)]


def test_a_run_begins_again_with_the_changed_file_at_the_end_of_a_batch(
    folder: Works, caplog: pytest.LogCaptureFixture
) -> None:
    topic = filled(folder)
    path = made(folder, STEPS + SINKS)
    with running(folder, path, restart=True) as outcomes:
        replaced(path, "id % 2 = 0", "no_function(id)")
        until(lambda: "not restarted, continues" in caplog.text, "the refusal")
        assert "no_function" in caplog.text
        put(topic, [22, 23])
        until(lambda: 22 in ids(folder, "even"), "rows of the first file")
        replaced(path, "no_function(id)", "id % 2 = 1")
        until(lambda: "starts again with" in caplog.text, "the restart")
        put(topic, [24, 25])
        until(lambda: 25 in ids(folder, "even"), "rows of the second file")
        assert changes(path) == ()
        replaced(path, "checkpoints/p", "checkpoints/other")
        until(lambda: "the checkpoint of pipeline" in caplog.text, "another refusal")
    (outcome,) = outcomes
    assert (outcome.failure, outcome.rows, outcome.stopped) == (None, 24, True)
    assert outcome.changes == (f"{path}: checkpoint",)
    assert ids(folder, "even") == [*range(0, 20, 2), 22, 25]
    assert ids(folder, "words") == [*range(20), 22, 23, 24, 25]


def test_a_stop_waits_for_no_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking, over = threading.Event(), threading.Event()

    def look(_: object) -> None:
        looking.set()
        over.wait(60)
        raise OSError

    monkeypatch.setattr(watching.Watch, "look", look)
    watch, stop = watching.Watch([tmp_path / "none.toml"], OVER), threading.Event()
    with watch.following(stop):
        assert looking.wait(60)
        stop.set()
        assert watch.halt.wait(10)
    over.set()
    assert not watch.restarts


def test_what_is_noted_ends_with_the_run(tmp_path: Path) -> None:
    place = Place.of(str(tmp_path))
    note(place, ["nobody holds it"])
    assert noted(place) == ()
    with hold(place):
        note(place, ["one", "two"])
        assert noted(place) == ("one", "two")
        note(place, ["\x1b[31mred"])
        assert noted(place)[0].isprintable()
        note(place, [])
        assert noted(place) == ()
        (tmp_path / LOCK).write_bytes(b"x\n" * 10_000 + b"\xff")
        assert len(noted(place)) < 100
    assert noted(place) == ()


def test_the_option_is_for_runs_that_continue(folder: Works, command: Command) -> None:
    filled(folder)
    path = made(folder, STEPS + SINKS)
    refused = command("run", path, "--once", "--restart-on-change")
    assert (refused.status, "requires --continuous" in refused.err) == (2, True)
    end = json.loads(command("run", path, "--once", "--json").out.splitlines()[-1])
    assert end["pipelines"][0]["changed"] == []
